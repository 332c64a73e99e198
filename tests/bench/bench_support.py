"""Rows as trainings write them, made by hand."""

from gmiflow.bench.jobs import Job, Limits


def row(task="ant", side="gmiflow", seed=0, curve=((1.0, 100, 0.0), (3.0, 300, 40.0)), **changes):
    values = {
        "row": "training",
        "key": f"{task}-{side}-{seed}",
        "task": task,
        "side": side,
        "seed": seed,
        "num_env": 4096,
        "replicas": 1,
        "steps_per_s": 1000.0,
        "train_s": 3.0,
        "env_steps": 300,
        "last_return": curve[-1][2] if curve else None,
        "goal": 30.0,
        "goal_s": 3.0,
        "goal_env_steps": 300,
        "evaluation": None,
        "curve": [list(point) for point in curve],
    }
    return {**values, **changes}


def evaluation(mean_return, speed, survival=1.0, solved=True):
    measures = {"forward_speed": speed}
    return {"mean_return": mean_return, "survival": survival, "measures": measures, "solved": solved}


def job(**changes):
    values = {
        "task": "ant",
        "side": "gmiflow",
        "seeds": (0,),
        "num_env": 64,
        "target": "cpu",
        "settings": (),
        "limits": Limits(iterations=3),
        "goal": 1.0,
        "source": "0" * 64,
    }
    return Job(**{**values, **changes})
