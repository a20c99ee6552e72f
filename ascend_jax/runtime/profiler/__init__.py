"""What ran when: recorded while a program runs, and written as the tables and the timeline of CANN's profiler."""
