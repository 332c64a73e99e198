"""GPUs and GMIs for tests that need their description, not the thing."""

from gmiflow.hardware import GPU, Hardware
from gmiflow.plan import GMIPlan


def gpu(index=0, *, sm_count=132, mig=False):
    return GPU(
        index=index,
        uuid=f"GPU-{index}1111111-2222-3333-4444-555555555555",
        name="Test GPU",
        sm_count=sm_count,
        memory_bytes=140 << 30,
        mig=mig,
    )


def hardware(*gpus):
    return Hardware(cores=4, gpus=gpus)


def gmi(index=0, *, backend="mps", device=0, share=0.25, memory_mib=0):
    return GMIPlan(
        id=index,
        training="train",
        program=f"gmi_{index:02d}.py",
        backend=backend,
        device=device,
        share=share,
        cores=1,
        threads=1,
        stages=("sim", "actor", "learner"),
        num_env=1024,
        env_offset=1024 * index,
        memory_mib=memory_mib,
    )
