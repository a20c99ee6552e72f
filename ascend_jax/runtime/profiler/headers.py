"""Headers of the profiler's tables, as CANN and torch_npu write them.

Sources: Ascend/msprof @9ba1ac7b, analysis/csrc/application/summary/*_assembler.cpp and
analysis/msconfig/msprof_export_data_config.py; Ascend/pytorch @9e73e708, prof_common_func/_csv_headers.py and
prof_view/_trace_step_time_parser.py.
"""


def columns(text: str) -> list[str]:
    """A header as it stands in a file, column by column."""
    return text.split(",")


TENSORS = columns("Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats")
OP_SUMMARY = columns(
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us)"
)
OP_ATTRIBUTES = ["Block Num", "Mix Block Num", "HF32 Eligible", *TENSORS, "Context ID"]
STATISTIC = columns("Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)")
OP_STATISTIC = ["Device_id", "OP Type", "Core Type", *STATISTIC]
COMMUNICATION_STATISTIC = ["Device_id", "OP Type", *STATISTIC]
API_STATISTIC = columns("Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance")
TASK_TIME = columns("Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)")
MEMORY_RECORD = columns("Device_id,Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB),Device")
OPERATOR_MEMORY = columns(
    "Device_id,Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(KB),Allocation Total Reserved(KB),"
    "Release Total Allocated(KB),Release Total Reserved(KB),Device"
)
STEP_TRACE_TIME = columns(
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
KERNEL_DETAILS = columns("Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num")
