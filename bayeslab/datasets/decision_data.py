"""Simulators of what is acted in: a grid world, a pendulum, and a pole that is balanced."""

from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, as_share, axis_lengths

MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
ACTIONS = ("north", "east", "south", "west")


def grid_world(num_rows: int = 3, num_columns: int = 4, *, slip: float = 0.2) -> xr.Dataset:
    """A walk on a grid with two goals: transition (state, action, state_) and reward (state,), cells row by row.

    A step goes where it is meant to, but with probability slip to one of both sides; walls stop it. The start is in the
    corner, state 0; the cell below it, which is near, has reward 1, the opposite corner 10, and both lead back to the
    start. CS229, 16.1, has goals of these rewards.
    Raises ValueError for fewer than two rows or columns and a slip that is no probability, TypeError for no integers.
    """
    num_rows, num_columns = axis_lengths(num_rows=num_rows, num_columns=num_columns)
    for name, number in (("num_rows", num_rows), ("num_columns", num_columns)):
        if number < 2:
            raise ValueError(f"{name} is {number}; expected two at least.")
    slip = as_share("slip", slip)
    num_states = num_rows * num_columns
    cells = np.stack(np.divmod(np.arange(num_states), num_columns), 1)
    after = np.clip(cells[:, None] + MOVES, 0, [num_rows - 1, num_columns - 1]) @ [num_columns, 1]
    transition = np.zeros((num_states, 4, num_states))
    for action in range(4):
        for turn, probability in ((0, 1 - slip), (1, slip / 2), (3, slip / 2)):
            np.add.at(transition[:, action], (np.arange(num_states), after[:, (action + turn) % 4]), probability)
    reward = np.zeros(num_states)
    reward[num_columns], reward[-1] = 1.0, 10.0
    transition[reward > 0] = np.eye(num_states)[0]
    coords = {"action": list(ACTIONS), "state": np.arange(num_states)}
    return xr.Dataset(
        {"transition": (("state", "action", "state_"), transition), "reward": (("state",), reward)}, coords=coords
    )


def grid_walk(num_moves: int, *, seed: int = 0) -> dict[str, Any]:
    """The data of `bayeslab.models.mdp_model`: a walk of random actions in `grid_world`, with noise in the rewards.

    state, action, next_state and reward (move,); rewards are off by N(0, 0.1^2).
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_moves,) = axis_lengths(num_moves=num_moves)
    world, rng = grid_world(), np.random.default_rng(as_integer("seed", seed, 0))
    probs, rewards = world["transition"].values, world["reward"].values
    state, action = np.zeros(num_moves + 1, int), rng.integers(0, 4, num_moves)
    for move in range(num_moves):
        state[move + 1] = rng.choice(len(rewards), p=probs[state[move], action[move]])
    gain = rewards[state[:-1]] + rng.normal(0, 0.1, num_moves)
    columns = {"state": state[:-1], "action": action, "next_state": state[1:], "gain": gain}
    axes = {"move": np.arange(num_moves)}
    rows = {name: xr.DataArray(values, axes, ["move"]) for name, values in columns.items()}
    return {"num_states": len(rewards), "num_actions": 4, **rows}


def river_swim(num_states: int = 6) -> xr.Dataset:
    """Swimming against a river: transition (state, action, state_) and reward (state,), places from down to up.

    Action 0, to drift, always leads one place down. To swim, action 1, leads up with probability 0.35 and down with
    0.05, at the lower end up with 0.6, and keeps its place at the upper end with 0.95. The lower end has reward 0.005,
    the upper 1: who has never been up there must try many times what seems to be worth nothing (A. Strehl and M.
    Littman 2008, An analysis of model-based interval estimation for Markov decision processes, where rewards are those
    of actions at both ends).
    Raises ValueError for fewer than three places, TypeError for no integer.
    """
    (num_states,) = axis_lengths(num_states=num_states)
    if num_states < 3:
        raise ValueError(f"a river has at least three places, but num_states is {num_states}.")
    down, up = np.eye(num_states, k=-1), np.eye(num_states, k=1)
    drift = down.copy()
    drift[0, 0] = 1.0
    swim = 0.05 * down + 0.6 * np.eye(num_states) + 0.35 * up
    swim[0, :2], swim[-1, -2:] = (0.4, 0.6), (0.05, 0.95)
    reward = np.zeros(num_states)
    reward[0], reward[-1] = 0.005, 1.0
    coords = {"action": ["drift", "swim"], "state": np.arange(num_states)}
    transition = np.stack([drift, swim], axis=1)
    return xr.Dataset(
        {"transition": (("state", "action", "state_"), transition), "reward": (("state",), reward)}, coords=coords
    )


def swinging_pendulum(num_steps: int, *, seed: int = 0) -> dict[str, Any]:
    """Data of `bayeslab.models.linear_dynamics_model`: a pendulum that hangs and is pushed at random.

    state and y (row, component), angle in radians and angular velocity, before and after a step of 0.1 s; action
    (row, input), torques over the moment of inertia, N(0, 1). Noise is N(0, 0.01^2) and N(0, 0.05^2).
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_steps,) = axis_lengths(num_steps=num_steps)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    action, path = rng.normal(size=(num_steps, 1)), np.zeros((num_steps + 1, 2))
    for step in range(num_steps):
        angle, velocity = path[step]
        force = -9.8 * np.sin(angle) - 0.5 * velocity + action[step, 0]
        velocity += 0.1 * force  # before the angle moves: the other way round steps feed the swing, and it grows
        path[step + 1] = rng.normal([angle + 0.1 * velocity, velocity], [0.01, 0.05])
    row, component = np.arange(num_steps), ["angle", "velocity"]
    axes = {"row": row, "component": component}
    return {
        "state": xr.DataArray(path[:-1], axes, ["row", "component"]),
        "action": xr.DataArray(action, {"row": row, "input": ["torque"]}, ["row", "input"]),
        "y": xr.DataArray(path[1:], axes, ["row", "component"]),
    }


def balanced_pole(num_actions: int, *, seed: int = 0) -> dict[str, Any]:
    """The data of `bayeslab.models.lqg`: a pole that is kept upright by pushes, its angle measured with noise.

    y (step, direction) are angles in radians every 0.1 s, off by N(0, 0.02^2); action (turn, input), pushes after all
    measurements but the last, against the angle and how it has changed. States are angle and angular velocity.
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_actions,) = axis_lengths(num_actions=num_actions)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    system = {
        "mu1": np.zeros(2),
        "sigma1": np.diag([0.1**2, 0.1**2]),
        "a": np.array([[1.0, 0.1], [0.5, 1.0]]),
        "q": np.diag([0.002**2, 0.02**2]),
        "b": np.array([[0.005], [0.1]]),
        "c": np.array([[1.0, 0.0]]),
        "r": np.array([[0.02**2]]),
    }
    s, y, action = rng.normal(0, 0.1, 2), np.zeros((num_actions + 1, 1)), np.zeros((num_actions, 1))
    for step in range(num_actions + 1):
        y[step] = s[0] + rng.normal(0, 0.02)
        if step < num_actions:
            change = (y[step] - y[step - 1]) / 0.1 if step else 0.0
            action[step] = -12.0 * y[step] - 1.5 * change
            s = system["a"] @ s + system["b"] @ action[step] + rng.normal(0, [0.002, 0.02])
    axes = {"step": np.arange(num_actions + 1), "direction": ["angle"]}
    return {**system, "action": action, "y": xr.DataArray(y, axes, ["step", "direction"])}
