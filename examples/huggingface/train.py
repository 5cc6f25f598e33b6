"""Train a tiny Llama with the Hugging Face Trainer and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. The two lines that matter are marked.
"""

import argparse

import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from ckptguard.integrations.huggingface import guarded_saves  # (1)

VOCABULARY, CONTEXT, BATCH = 128, 16, 2
FSDP = {
    "version": 2,
    "state_dict_type": "SHARDED_STATE_DICT",
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
}


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random sequences, the same in every process."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(VOCABULARY, (CONTEXT,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


class TrainerHere(Trainer):
    """Prints each loss, and shards on a machine without GPUs too: Accelerate itself does so on GPUs only."""

    def create_accelerator_and_postprocess(self) -> None:
        """Turn FSDP on, where Accelerate left it off."""
        super().create_accelerator_and_postprocess()
        if self.is_fsdp_enabled:
            return
        state = self.accelerator.state
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
        state.distributed_type = DistributedType.FSDP
        self.is_fsdp_enabled = True

    def training_step(self, *args: object, **options: object) -> torch.Tensor:
        """Train, and print the loss of this rank."""
        loss: torch.Tensor = super().training_step(*args, **options)
        if self.is_world_process_zero():
            print(f"step {self.state.global_step + 1}: loss {loss.item()!r}", flush=True)
        return loss


def main() -> None:
    """Train."""
    asked = arguments()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
    )
    trainer = TrainerHere(
        model=LlamaForCausalLM(config),
        args=TrainingArguments(
            output_dir=asked.folder,
            max_steps=asked.steps,
            save_strategy="steps",
            save_steps=2,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-3,
            seed=0,
            fsdp=True,
            fsdp_config=FSDP,
            use_cpu=not torch.cuda.is_available(),
            ddp_backend=None if torch.cuda.is_available() else "gloo",
            report_to="none",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Tokens(),
        callbacks=[guarded_saves(run=asked.run)],  # (2)
    )
    trainer.train(resume_from_checkpoint=asked.resume)


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets checkpoint-2, checkpoint-4, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
