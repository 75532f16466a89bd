"""verl: snapshots around the stages in which its workers come into being.

Until 0.7 they are methods of ``main_ppo.TaskRunner``; 0.9 has a runner of another shape there, and keeps the older one,
with one method renamed, in ``main_ppo_v0``.
"""

from __future__ import annotations

from .protocol import SNAPSHOT, Framework, Target

_OLDER = tuple(
    Target("verl.trainer.main_ppo", "TaskRunner", name)
    for name in (
        "add_actor_rollout_worker",
        "add_critic_worker",
        "add_reward_model_worker",
        "add_ref_policy_worker",
        "run",
    )
)

_NEWER = (
    *(
        Target("verl.trainer.main_ppo_v0", "BaseTaskRunner", name)
        for name in (
            "add_actor_rollout_worker",
            "add_critic_worker",
            "add_reward_model_resource_pool",
            "add_ref_policy_worker",
        )
    ),
    Target("verl.trainer.main_ppo_v0", "TaskRunner", "run"),
    Target("verl.trainer.main_ppo", "TaskRunnerV1", "run"),
)

FRAMEWORK = Framework(
    name="verl",
    module="verl",
    distribution="verl",
    versions={"0.7-0.7": {"TaskRunner": {SNAPSHOT: _OLDER}}, "0.8+": {"TaskRunner": {SNAPSHOT: _NEWER}}},
)
