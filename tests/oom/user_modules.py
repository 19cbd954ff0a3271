"""Files of users, as `oom simulate --module` meets them: good ones, transformers-like ones, and every kind of bad one."""

from __future__ import annotations

GPT = """
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (each.view(batch, tokens, self.heads, -1).transpose(1, 2) for each in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(batch, tokens, width)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width=64, heads=4, depth=4, vocab=512):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids, labels=None):
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(x)
        if labels is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def build():
    return GPT()


def build_in_16_bit_on_cuda():
    model = GPT().to("cuda:0").bfloat16()
    assert model.lm_head.weight is model.wte.weight
    return model


def with_inputs():
    return GPT(), {"ids": torch.zeros(2, 32, dtype=torch.long), "labels": torch.zeros(2, 32, dtype=torch.long)}


def make_batch():
    return torch.randint(512, (2, 32)), torch.randint(512, (2, 32))


class Simple(GPT):
    example_inputs = (torch.zeros(2, 32, dtype=torch.long),)


compiled = lambda: torch.compile(GPT())
"""

# As models of transformers are written: an output object, a mask that is looked at, a cache, drop path from linspace.
HF = """
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn


class ModelOutput(OrderedDict):
    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


@dataclass
class CausalLMOutput(ModelOutput):
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None
    past_key_values: Optional[tuple] = None


class Config:
    use_cache = True
    hidden_size, num_layers, vocab_size, pad_token_id = 64, 4, 512, 0


class DecoderLayer(nn.Module):
    def __init__(self, config, drop_path):
        super().__init__()
        self.drop_path = drop_path
        width = config.hidden_size
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj, self.norm, self.mlp = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, hidden, mask, position_ids, cache=None):
        x = self.norm(hidden)
        q, k, v = (each(x).unflatten(-1, (4, -1)).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj))
        if cache is not None:
            cache.append((k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        hidden = hidden + self.o_proj(out.transpose(1, 2).flatten(2))
        return (hidden + self.mlp(hidden),)


class ForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        rates = [x.item() for x in torch.linspace(0, 0.1, config.num_layers)]
        self.layers = nn.ModuleList([DecoderLayer(config, rate) for rate in rates])
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.lm_head.weight = self.embed_tokens.weight
        self.register_buffer("bias", torch.tril(torch.ones(64, 64, dtype=torch.bool)), persistent=False)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, labels=None):
        batch, tokens = input_ids.shape
        if position_ids is None:
            position_ids = torch.arange(tokens, device=input_ids.device).unsqueeze(0).expand(batch, -1)
        mask = None
        if attention_mask is not None and not attention_mask.all():
            mask = attention_mask[:, None, None, :].to(torch.bool).expand(batch, 1, tokens, tokens)
            mask = mask & self.bias[:tokens, :tokens]
        cache = [] if self.config.use_cache and past_key_values is None else None
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, mask, position_ids, cache)[0]
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            shifted = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
            loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), shifted.view(-1), ignore_index=-100)
        return CausalLMOutput(loss=loss, logits=logits, past_key_values=tuple(cache) if cache else None)


def build():
    return ForCausalLM(Config())


def padded():
    mask = torch.ones(2, 32, dtype=torch.long)
    mask[:, 20:] = 0
    return {"input_ids": torch.zeros(2, 32, dtype=torch.long), "attention_mask": mask}
"""

BAD = """
import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(16, 16), function

    def forward(self, x):
        return self.function(self.linear(x))


class Model(nn.Module):
    def __init__(self, function=lambda x: x):
        super().__init__()
        self.parts = nn.ModuleDict({"inner": Inner(function)})

    def forward(self, x):
        return self.parts["inner"](x)


@torch.library.custom_op("users::kernel", mutates_args=())
def kernel(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def item(): return Model(lambda x: x * x.sum().item())
def branch(): return Model(lambda x: x if x.sum() > 0 else -x)
def formats(): return Model(lambda x: (x, f"{x.mean():.3f}")[0])
def nonzero(): return Model(lambda x: x[x > 0])
def bincount(): return Model(lambda x: x * torch.bincount(x.long().flatten()).sum())
def as_numpy(): return Model(lambda x: x * float(x.detach().numpy().sum()))
def no_fake(): return Model(kernel)
def shapes(): return Model(lambda x: x @ torch.ones(3, 3))
def detached(): return Model(lambda x: x.detach())
def calls_cuda(): return Model(lambda x: x * torch.cuda.current_device())
def raises(): raise ValueError("depth must be even")
def returns_none(): Model()
def arguments(depth, width=16): return Model()
def asks(): return input("which? ")
def exits(): sys.exit("no data folder")
def ends(): os._exit(7)
def killed(): os.kill(os.getpid(), 9)
def ends_in_forward(): return Model(lambda x: os._exit(5))
def hangs_in_forward(): return Model(lambda x: time.sleep(600))
def too_large(): return np.ones(1 << 44, dtype=np.uint8), Model()
def group(): torch.distributed.init_process_group("gloo")
def frozen(): return Model().requires_grad_(False)
def lazy(): return nn.Sequential(nn.LazyLinear(4))


def unruly():
    print("x" * 100_000)
    os.chdir("/")
    subprocess.Popen(["sleep", "20"])
    model = Model()
    model.table = torch.empty(1 << 40)
    return model


number = 3
"""
