"""The smallest recurrent network, in float64, and the same in NumPy one step at a time."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from ding_like.data import tree_map
from ding_like.rl_utils.loss import select
from ding_like.rl_utils.td import q_learning_pair


class Elman(nn.Module):
    """h' = tanh(W x + U h + b), Q = V h'; the state is `{'h': [B, 1, H]}`."""

    def __init__(self, size=2, actions=3, hidden=3, seed=0):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.hidden = hidden
        for name, shape in (("w", (hidden, size)), ("u", (hidden, hidden)), ("b", (hidden,)), ("v", (actions, hidden))):
            setattr(self, name, nn.Parameter(torch.as_tensor(rng.normal(size=shape))))

    def initial_state(self, batch):
        return {"h": torch.zeros(batch, 1, self.hidden, dtype=torch.float64)}

    def forward(self, inputs, inference=False):
        obs, cut = inputs["obs"], inputs.get("cut")
        if inference:
            hidden = torch.tanh(obs @ self.w.T + inputs["prev_state"]["h"][:, 0] @ self.u.T + self.b)
            return {"logit": hidden @ self.v.T, "next_state": {"h": hidden[:, None]}}
        outputs, state = [], inputs["prev_state"]
        for t in range(len(obs)):
            out = self.forward({"obs": obs[t], "prev_state": state}, inference=True)
            state = out["next_state"]
            if cut is not None:
                state = {"h": torch.where(cut[t][:, None, None] > 0, state["h"], 0.0)}
            outputs.append(out["logit"])
        return {"logit": torch.stack(outputs), "next_state": state}


def elman_step(net, obs, state):
    """Q-values (list) and the next state of one observation, from the numbers of the network alone."""
    w, u, b, v = (p.detach().numpy() for p in (net.w, net.u, net.b, net.v))
    hidden = np.tanh(w @ obs + u @ state["h"].numpy()[0, 0] + b)
    return (v @ hidden).tolist(), {"h": torch.as_tensor(hidden)[None, None]}


def network_step(net, obs, state):
    """The same of any recurrent network."""
    with torch.no_grad():
        out = net({"obs": torch.as_tensor(obs)[None], "prev_state": tree_map(torch.clone, state)}, inference=True)
    return out["logit"][0].tolist(), out["next_state"]


def errors_of(seen, rescale=False):
    """Of outputs of `SequenceQ` the values `taken`, the `wanted` ones and `mask`, `[S, N]`; 0 where none trains."""
    windows = seen.windows
    action = windows.action[windows.start : windows.stop]
    values = seen.online["logit"], action, windows.reward, windows.discount, seen.target["logit"], seen.choice
    taken, wanted = (select(x.squeeze(-1), windows.mask) for x in q_learning_pair(*values, rescale))
    return SimpleNamespace(taken=taken, wanted=wanted, mask=windows.mask)
