# SPDX-License-Identifier: Apache-2.0
"""Trains a LoRA so that a model reads notes under ZoomR's mask, and makes a Hugging Face directory of it.

    python3 lora.py --model DIR --text MIDDLEMARCH.txt --out RUN --steps 600 [--index 0.5]    trains, goes on if stopped
    python3 lora.py --model DIR --out RUN --merge MERGED                                      DIR with the LoRA added

The problems are those of the task `notes` (../retrieval/notes.cpp), from other seeds: some notes with a code each and a
summary that does not say it, and a question for one code. Every second example is read densely. In the others the
tokens of the answer see sinks, the last tokens, all summaries and the needed note alone, as zoomr-eval's `oracle` does.
The loss is the answer's and, with the weight `--summaries`, the summaries' own.

That is how ZoomR's paper trains, on its own texts. Nothing in it asks that a summary be found. `--index` adds that with
a weight: each head of each layer has a softmax of its query times the mean key of each segment's summary, and -ln of
the mean probability of the needed one, over all heads, is the loss. So the votes that `zoomr_one_pass` counts become an
index. `--whole` adds the loss of all tokens with a weight, so that the model forgets less of its language.

RUN/curve.csv has the losses, RUN/checkpoint.pt what is needed to go on. It needs torch, peft and transformers.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import shutil
import sys
import time

import torch
from torch.nn import functional

CITIES = ("Oslo Lima Kyoto Cairo Paris Delhi Quito Bern Dublin Havana Lisbon Athens Riga Tunis Sofia Malta Boston "
          "Denver Austin Hanoi Perth Milan Turin Seoul Dakar Accra Baku Minsk Vienna Prague Madrid Rome").split()
BUILDINGS = ("museum harbor library station bakery school garden theater hospital market bank hotel tower factory "
             "temple stadium").split()
MARKS = ("<repo_name>", "<reponame>", "<file_sep>", "<filename>")  # begin and end of a thought, of a summary
SINKS, RECENT = 4, 64           # zones of the presets
VOTES, CHOSEN = 2, 2            # k and c of the presets
RANK, ALPHA = 16, 32            # the paper's
HELD_OUT = 10**6                # problems from this number on are not trained on
CURVE = ["step", "seconds", "tokens", "answer_dense", "answer_masked", "summaries", "index", "whole",
         "held_out_dense", "held_out_masked", "held_out_found", "held_out_needed_votes"]


def plain_sentences(text):
    """As problem_maker::add_sentences: 40 to 160 bytes, no mark but its full stop that could end another one."""
    found = []
    for sentence in text.replace("\n", " ").replace("\r", " ").split(". "):
        sentence = sentence.lstrip(" ") + "."
        if not set(sentence) & set("?!\"*[]") and "  " not in sentence and 40 < len(sentence.encode()) < 160:
            found.append(sentence)
    return found


class Problems:
    """Problems by number; the same seed and number are the same problem."""

    def __init__(self, tokenizer, text, seed):
        self.encode = lambda part: tokenizer.encode(part, add_special_tokens=False).ids
        self.sentences, self.seed = plain_sentences(text), seed

    def make(self, number):
        """A problem: ids, where its answer begins, segments as (begin, cue begin, cue end, end), the needed segment."""
        dice = random.Random(f"{self.seed} {number}")
        count = dice.randint(6, 12)
        places = [f"the {dice.choice(BUILDINGS)} in {city}" for city in dice.sample(CITIES, count)]
        codes = [str(dice.randint(10000, 99999)) for _ in places]
        wanted = dice.randrange(count - 1)                                  # the last note lies in the window
        ids = self.encode("<|im_start|>user\nRead the notes.\n")
        segments, summaries, needed = [(0, 0, len(ids), len(ids))], [], None
        for i, (place, code) in enumerate(zip(places, codes)):
            said = [dice.choice(self.sentences) for _ in range(dice.randint(2, 4))]
            said.insert(dice.randint(1, 2), f"The secret code of {place} is {code}.")
            begin = len(ids)
            ids += self.encode(f"{MARKS[0]}Note on {place}. {' '.join(said)}{MARKS[1]}{MARKS[2]}")
            cue = len(ids)
            ids += self.encode(f"About {place}.{MARKS[3]}")
            needed = len(segments) if i == wanted else needed
            segments.append((begin, cue, len(ids) - 1, len(ids)))
            summaries.append((cue - 1, len(ids)))
            ids += self.encode("\n")                                        # text outside of marks: its own segment
            segments.append((len(ids) - 1, len(ids) - 1, len(ids), len(ids)))
        what = f"secret code of {places[wanted]}"
        ids += self.encode(f"What is the {what}?<|im_end|>\n<|im_start|>assistant\nThe {what} is")
        answer = len(ids)
        ids += self.encode(f" {codes[wanted]}.<|im_end|>")
        return {"ids": ids, "answer": answer, "segments": segments, "summaries": summaries, "needed": needed}


def mask_of(problem, zoomed):
    """[1, 1, T, T], 0 where a token is seen, -infinity elsewhere."""
    size, answer = len(problem["ids"]), problem["answer"]
    seen = torch.ones(size, size, dtype=torch.bool).tril()
    if zoomed:
        details = torch.ones(size, dtype=torch.bool)
        details[:SINKS] = False
        begin, cue, _, end = problem["segments"][problem["needed"]]
        details[begin:end] = False
        for first, last in problem["summaries"]:
            details[first:last] = False
        for row in range(answer, size):
            hidden = details.clone()
            hidden[row + 1 - RECENT:] = False
            seen[row] &= ~hidden
    return torch.zeros(1, 1, size, size, dtype=torch.bfloat16).masked_fill_(~seen, float("-inf"))


class Index:
    """Scores of all heads for the problem that passes: query times mean key of each segment that can be chosen."""

    def __init__(self):
        self.problem, self.scores = None, []

    def begin(self, problem):
        self.problem, self.scores = problem, []
        last = problem["answer"]                                            # the query that chooses is of last - 1
        self.candidates = [i for i, (begin, _, cue, end) in enumerate(problem["segments"])
                           if end > SINKS and begin < last - RECENT]
        self.target = self.candidates.index(problem["needed"])

    def record(self, query, key, scale):
        """query [1, heads, T, D], key [1, kv_heads, T, D], both rotated."""
        p = self.problem
        spans = [p["segments"][i] for i in self.candidates]
        means = torch.stack([key[0, :, cue:end].float().mean(1) for _, cue, end, _ in spans], 1)
        rows = query[0, :, p["answer"] - 1:len(p["ids"]) - 2].float()       # whose next token is of the answer
        means = means.repeat_interleave(rows.shape[0] // means.shape[0], 0)
        self.scores.append(scale * rows @ means.transpose(1, 2))            # [heads, rows, segments]

    def loss(self):
        """The prompt's last query, which makes the first choice, counts as much as those of the answer together."""
        shares = torch.cat(self.scores).softmax(-1).mean(0)                 # [rows, segments]
        each = -shares[:, self.target].clamp_min(1e-9).log()
        return (each[0] + each[1:].mean()) / 2

    def found(self):
        """Whether votes of the prompt's last query choose what is needed, and its part of the votes."""
        scores = torch.cat(self.scores)[:, 0]
        votes = torch.zeros(scores.shape[1]).index_add_(0, scores.topk(VOTES).indices.flatten(),
                                                        torch.ones(VOTES * scores.shape[0]))
        return float(self.target in votes.topk(CHOSEN).indices), float(votes[self.target] / votes.sum())


INDEX = Index()


def attention(module, query, key, value, attention_mask, scaling, **unused):
    """As two products: on a CPU that takes a third of scaled_dot_product_attention's time."""
    INDEX.record(query, key, scaling)
    with torch.autocast("cpu", enabled=False):
        query, key, value = (x.to(torch.bfloat16) for x in (query, key, value))
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
        shares = ((query * scaling) @ key.transpose(2, 3) + attention_mask).softmax(-1)
        return (shares @ value).transpose(1, 2).contiguous(), None


def load(directory, seed):
    from peft import LoraConfig, get_peft_model
    from transformers import AttentionInterface, AutoModelForCausalLM
    AttentionInterface.register("indexed", attention)
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="indexed")
    return get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0,
                                           target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))


def losses(model, problem, zoomed, whole=False):
    """Mean losses of the answer, of the summaries, of the index, and, if asked for, of the whole text."""
    INDEX.begin(problem)
    ids = torch.tensor(problem["ids"])
    answer = torch.arange(problem["answer"], len(ids))
    summaries = torch.cat([torch.arange(first + 1, last) for first, last in problem["summaries"]])
    places = torch.arange(1, len(ids)) if whole else torch.cat([summaries, answer])
    llama = model.base_model.model
    with torch.autocast("cpu", torch.bfloat16):
        hidden = llama.model(input_ids=ids[None], attention_mask=mask_of(problem, zoomed), use_cache=False)[0][0]
        logits = llama.lm_head(hidden[places - 1])
    each = functional.cross_entropy(logits.float(), ids[places], reduction="none")
    if not whole:
        return each[len(summaries):].mean(), each[:len(summaries)].mean(), INDEX.loss(), torch.zeros(())
    return each[answer - 1].mean(), each[summaries - 1].mean(), INDEX.loss(), each.mean()


@torch.no_grad()
def held_out(model, problems, count):
    rows = []
    for number in range(HELD_OUT, HELD_OUT + count):
        problem = problems.make(number)
        dense = losses(model, problem, False)[0].item()
        rows.append((dense, losses(model, problem, True)[0].item(), *INDEX.found()))
    return [sum(column) / count for column in zip(*rows)]


def rate(step, steps, largest, warm=20):
    return largest * min((step + 1) / warm, 1.0) * (1 - step / steps)


class Run:
    """The folder of a training: what is done, and where it goes on."""

    def __init__(self, options, model, optimizer):
        self.options, self.model, self.optimizer = options, model, optimizer
        self.checkpoint, self.curve = options.out / "checkpoint.pt", options.out / "curve.csv"
        self.settings = {name: str(getattr(options, name))
                         for name in ("steps", "batch", "rate", "seed", "index", "summaries", "whole")}
        self.step, before = 0, 0.0
        options.out.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            before = self.resume()
        else:
            self.curve.write_text(",".join(CURVE) + "\n")
        self.first, self.begin = self.step, time.monotonic() - before
        self.rows = []                                                      # of steps since the last checkpoint

    def resume(self):
        """Seconds that it took so far."""
        kept = torch.load(self.checkpoint, weights_only=True)
        if kept["settings"] != self.settings:
            sys.exit(f"lora.py: {self.checkpoint} was trained with {kept['settings']}, not with {self.settings}")
        self.model.load_state_dict(kept["lora"], strict=False)
        self.optimizer.load_state_dict(kept["optimizer"])
        self.step = kept["step"]
        lines = [line for line in self.curve.read_text().splitlines()[1:] if int(line.split(",")[0]) <= self.step]
        self.curve.write_text("\n".join([",".join(CURVE), *lines]) + "\n")
        return kept["seconds"]

    def seconds(self):
        return time.monotonic() - self.begin

    def keep(self, figures):
        """A line of the curve, with the means since the last one, and a checkpoint."""
        seconds = self.seconds()
        means = [sum(column) / len(self.rows) for column in zip(*self.rows)] or [float("nan")] * 6
        with open(self.curve, "a", newline="") as file:
            csv.writer(file).writerow([self.step, f"{seconds:.0f}", *(f"{x:.4g}" for x in means + figures)])
        partial = self.checkpoint.with_suffix(".partial")
        torch.save({"lora": {name: x for name, x in self.model.state_dict().items() if "lora_" in name},
                    "optimizer": self.optimizer.state_dict(), "step": self.step, "seconds": seconds,
                    "settings": self.settings}, partial)
        os.replace(partial, self.checkpoint)
        self.rows = []

    def show(self, started):
        each = (time.monotonic() - started) / (self.step - self.first)
        left = each * (self.options.steps - self.step) / 60
        print(f"step {self.step} of {self.options.steps}: losses " + " ".join(f"{x:.3f}" for x in self.rows[-1][1:])
              + f", {each:.1f} s a step, {left:.0f} minutes left", file=sys.stderr, flush=True)


def one_step(model, optimizer, problems, step, options):
    """Means over the step's examples: tokens, and losses of the answer read densely and masked, of the summaries, of the
    index, of the whole text."""
    for group in optimizer.param_groups:
        group["lr"] = rate(step, options.steps, options.rate)
    tokens, answers, others = 0, ([], []), []
    for i in range(options.batch):
        problem, zoomed = problems.make(step * options.batch + i), i % 2
        answer, summaries, index, text = losses(model, problem, zoomed, options.whole > 0)
        loss = answer + options.summaries * summaries + options.index * index + options.whole * text
        (loss / options.batch).backward()
        answers[zoomed].append(answer.item())
        others.append((summaries.item(), index.item(), text.item()))
        tokens += len(problem["ids"])
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return [tokens / options.batch, *(sum(column) / len(column) for column in (*answers, *zip(*others)))]


def train(options):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    problems = Problems(tokenizer, options.text.read_text(), options.seed)
    model = load(options.model, options.seed)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=options.rate, weight_decay=0.0)
    run, started = Run(options, model, optimizer), time.monotonic()
    if run.step == 0:
        run.keep(held_out(model, problems, options.held_out))
    while run.step < options.steps:
        run.rows.append(one_step(model, optimizer, problems, run.step, options))
        run.step += 1
        run.show(started)
        if run.step % options.every == 0 or run.step == options.steps:
            run.keep(held_out(model, problems, options.held_out))


def merge(options):
    """The directory once more, with B A alpha / rank added to the matrices, in their type."""
    from safetensors.torch import load_file, save_file
    kept = torch.load(options.out / "checkpoint.pt", weights_only=True)
    options.merge.mkdir(parents=True)
    tensors = load_file(options.model / "model.safetensors")
    lora = kept["lora"]
    for name in lora:
        if ".lora_A." in name:
            place = name.removeprefix("base_model.model.").split(".lora_A.")[0] + ".weight"
            added = lora[name.replace("lora_A", "lora_B")].float() @ lora[name].float() * (ALPHA / RANK)
            tensors[place] = (tensors[place].float() + added).to(tensors[place].dtype).contiguous()
    for file in options.model.iterdir():
        if file.name != "model.safetensors":
            shutil.copy(file, options.merge / file.name)
    save_file(tensors, options.merge / "model.safetensors", metadata={"format": "pt"})
    (options.merge / "lora.json").write_text(json.dumps({"step": kept["step"], **kept["settings"]}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="Hugging Face directory of a Llama")
    parser.add_argument("--text", type=pathlib.Path, help="novel whose sentences distract")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the run")
    parser.add_argument("--merge", type=pathlib.Path, help="directory to be made of the last checkpoint")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=2, help="examples of a step, an even number: half of them dense")
    parser.add_argument("--rate", type=float, default=3e-4, help="the largest learning rate")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--index", type=float, default=0.0, help="weight of the index' loss")
    parser.add_argument("--summaries", type=float, default=0.1, help="weight of the summaries' loss")
    parser.add_argument("--whole", type=float, default=0.0, help="weight of the whole text's loss")
    parser.add_argument("--every", type=int, default=25, help="steps between two checkpoints")
    parser.add_argument("--held-out", type=int, default=12, help="problems of the figures in the curve")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.merge:
        merge(options)
    elif options.text and options.batch % 2 == 0 < options.batch:
        train(options)
    else:
        parser.error("name --text and an even --batch to train, or --merge")
