"""TorchTitan's training step of one rank, as its trainer makes it (torchtitan/trainer.py): model, parallelisms, loss and
optimizer are its own; the data are ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Precision
from distdoctor.oom.simulation.child.titan.configuration import BACKEND, configuration
from distdoctor.oom.simulation.child.titan.interface import Titan
from distdoctor.oom.simulation.child.titan.pipeline import (
    Watch,
    layers_of_rank,
    split_of,
    watched_stages,
    with_layers,
)
from distdoctor.oom.training.base import CannotRunError, Observer, Program, World
from distdoctor.oom.training.loop import make_tokens
from distdoctor.oom.training.optimizers import states_of
from distdoctor.torch_private.fake_tensors import outside_modes
from distdoctor.torch_private.pipelining import skip_pipeline_vote

_MAX_NORM = 1.0
"""TorchTitan's default; any other clips in the same way."""


class TitanProgram(Program):
    """Built with parameters on the meta device, as TorchTitan builds it; their values are never set."""

    def __init__(self, titan: Titan, world: World, observer: Observer) -> None:
        """Raises CannotRunError, and whatever TorchTitan raises."""
        job = world.job
        self._titan, self._world, self._observer = titan, world, observer
        self._watch = Watch()
        self._schedule: Any = None
        self.num_params = 0
        """Of the layers that were built, whole: before anything is cut."""
        observer.at(Phase.INITIALISATION, step=0)
        rank = world.coordinate("pp")
        stages = None
        if job.mesh.pp > 1:
            split = split_of(titan, job)
            stages = with_layers(split, job, rank, world.chunks or layers_of_rank(split, job, rank))
        self._config = configuration(titan, job, stages)
        titan.set_backend(BACKEND)
        self._dims = titan.parallel_dims.from_config(self._config.parallelism, job.mesh.num_ranks)
        with outside_modes():
            self._dims.build_mesh()
        self._context = titan.step_context(parallel_dims=self._dims)
        self.loss = self._config.loss.build(compile_config=self._config.compile)
        self.parts = self._parts(self._model())
        for number, part in enumerate(self.parts):
            observer.name_modules(part, first_layer=sum(len(each.layers) for each in self.parts[:number]))
        observer.label(self.parameters(), Category.PARAMETERS)
        observer.label((buffer for part in self.parts for buffer in part.buffers()), Category.PARAMETERS)
        self._give_head_to_loss()
        self._optimizers = self._config.optimizer.build(model_parts=self.parts)

    def _model(self) -> Any:
        """The whole model, or the layers of this rank that stand for all, on the meta device."""
        job, config = self._world.job, self._titan.spec.model
        if len(config.layers) != job.known_shape.num_layers:
            raise CannotRunError(
                f"TorchTitan's model has {len(config.layers)} layers, the job's has {job.known_shape.num_layers}"
            )
        whole = list(config.layers)
        if job.mesh.pp == 1 and self._world.chunks is not None:
            config.layers = [whole[number] for number in self._world.chunks[0]]
        try:
            config.update_from_config(config=self._config)
            with torch.device("meta"), _dtype(job.precision):
                model = config.build()
        except (ValueError, NotImplementedError) as error:
            raise CannotRunError(f"TorchTitan refuses: {' '.join(str(error).split())[:200]}") from None
        finally:
            config.layers = whole
        self.num_params = sum(each.numel() for each in dict.fromkeys(model.parameters()))
        return model

    def _parts(self, model: Any) -> list[Any]:
        """The model as this rank has it: cut, checkpointed, sharded."""
        titan, config, device = self._titan, self._config, self._world.device
        arguments: dict[str, Any] = {
            "parallel_dims": self._dims,
            "training": config.training,
            "parallelism": config.parallelism,
            "compile_config": config.compile,
            "ac_config": config.activation_checkpoint,
            "dump_folder": "",
        }
        if self._world.job.mesh.pp > 1:
            with watched_stages(titan, self._world.job, self._dims, self._watch):
                self._schedule, parts, self._has_first, self._has_last = titan.spec.pipelining_fn(
                    model,
                    **arguments,
                    device=device,
                    model_config=titan.spec.model,
                    parallelize_fn=titan.spec.parallelize_fn,
                    loss_fn=self._watched_loss,
                )
            if not self._world.communicates:
                skip_pipeline_vote(self._schedule)
        else:
            parts = [titan.spec.parallelize_fn(model, **arguments)]
        for part in parts:
            part.to_empty(device=device)
            if getattr(part, "enable_weight_tying", False):
                # As its `init_states` does.
                part.tok_embeddings.weight = part.lm_head.weight
            part.train()
        return list(parts)

    def _give_head_to_loss(self) -> None:
        last = self.parts[-1]
        if hasattr(self.loss, "set_lm_head") and last.lm_head is not None:
            self.loss.set_lm_head(last.lm_head)
            last._skip_lm_head = True

    def step(self, number: int, observer: Observer) -> float | None:
        """Gradients of the step before are dropped, micro-batches, clipping, the optimizer."""
        job = self._world.job
        self._watch.observer, self._watch.step = observer, number
        self._optimizers.zero_grad(set_to_none=True)
        if self._schedule is not None:
            self._pipeline(number, observer)
        else:
            for micro_batch in range(job.num_micro_batches):
                self._micro_batch(number, micro_batch, observer)
                self._label_gradients(observer)
        self._label_gradients(observer)
        observer.at(Phase.OPTIMIZER_STEP, step=number)
        self._titan.clip_gradients(
            self.parameters(), _MAX_NORM, foreach=True, pp_mesh=self._dims.get_optional_mesh("pp")
        )
        self._optimizers.step()
        for optimizer in self._optimizers:
            for parameter, state in states_of(optimizer):
                observer.label((state,), Category.OPTIMIZER, of=parameter)
        return None

    def _micro_batch(self, number: int, micro_batch: int, observer: Observer) -> None:
        self._watch.micro_batch = micro_batch
        observer.at(Phase.DATA, step=number, micro_batch=micro_batch)
        tokens, labels, positions = (make_tokens(self._world) for _ in range(3))
        num_tokens = torch.ones((), dtype=torch.long, device=self._world.device)
        observer.label((tokens, labels, positions, num_tokens), Category.INPUTS)
        observer.at(Phase.FORWARD, step=number, micro_batch=micro_batch)
        with self._context():
            out = self.parts[0](tokens, positions=positions)
            loss = self._watched_loss(out, labels, num_tokens, positions=positions)[0]
            del out
            observer.at(Phase.BACKWARD, step=number, micro_batch=micro_batch)
            loss.backward()

    def _pipeline(self, number: int, observer: Observer) -> None:
        job = self._world.job
        observer.at(Phase.DATA, step=number)
        tokens, labels, positions = (
            make_tokens(self._world, num_micro_batches=job.num_micro_batches) for _ in range(3)
        )
        num_tokens = torch.ones((), dtype=torch.long, device=self._world.device)
        observer.label((tokens, labels, positions, num_tokens), Category.INPUTS)
        more: dict[str, Any] = {"positions": positions}
        if self._has_last:
            more |= {"target": labels, "losses": [], "loss_kwargs": {"global_valid_tokens": num_tokens}}
        self._watch.at(Phase.FORWARD, 0)
        with self._context():
            self._schedule.step(*((tokens,) if self._has_first else ()), return_outputs=False, **more)

    def _watched_loss(self, *args: Any, **kwargs: Any) -> Any:
        self._watch.at(Phase.LOSS, self._watch.micro_batch)
        return self.loss(*args, **kwargs)

    def _label_gradients(self, observer: Observer) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None:
                observer.label((parameter.grad,), Category.GRADIENTS, of=parameter)

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer steps; tied ones once."""
        return list(dict.fromkeys(each for part in self.parts for each in part.parameters()))

    def close(self) -> None:
        """Nothing was opened."""


@contextlib.contextmanager
def _dtype(precision: Precision) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if precision is Precision.PURE16 else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
