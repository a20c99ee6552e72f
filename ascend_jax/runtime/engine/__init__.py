"""Virtual time: tasks in streams, cores and copy engines that they occupy, and what runs when."""
