"""A text that a model wrote itself, as token ids, for measuring draft sources on what engines see.

Every prompt is answered greedily and at temperatures 0.7 and 1 with fixed seeds. That makes about
55,000 tokens with the prompts for a model that says as much as it may. The same model, engine and
number of threads give the same ids. Needs llama-cpp-python.

    python scripts/model_text.py -m model.gguf -o model.u16
    lookup-stats -m model.gguf --tokens model.u16 -c 2048 --spec-type ngram-adaptive
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click
import numpy as np
from tqdm import tqdm

SEED = 1
TEMPERATURES = (0.0, 0.7, 1.0)

CODE = """def load(path):
    rows = []
    with open(path) as file:
        for line in file:
            key, value = line.split("=")
            rows.append((key.strip(), value.strip()))
    return rows"""

PROMPTS = (
    "Explain how a bicycle stays upright.",
    "Write a short story about a lighthouse keeper and a storm.",
    "What are the main causes of inflation? Answer in full sentences.",
    "Describe the water cycle for a child of ten.",
    "Write a letter of complaint about a late train.",
    "Summarize the plot of Romeo and Juliet.",
    "Compare cats and dogs as pets.",
    "Give me a recipe for vegetable soup with amounts.",
    "List thirty countries and their capitals, one per line.",
    "List the planets of the solar system with their diameters as a Markdown table.",
    "Write a JSON array of ten people with name, age, city and e-mail.",
    "Write a YAML file that describes three servers with name, address and ports.",
    "Write a CSV file of ten products with id, name, price and stock.",
    "Make an HTML page with a table of the days of the week and a class for each day.",
    "Write a Python class for a bank account with deposit, withdraw and transfer.",
    "Write a C function that reverses a linked list, and explain it line by line.",
    "Write SQL statements that create tables for a library and insert ten rows into each.",
    "Write unit tests in Python for a function that adds two numbers.",
    "Write a shell script that backs up a folder every night and keeps the last seven copies.",
    "Write a JavaScript function that validates an e-mail address, then the same in Python.",
    f"Rename `rows` to `entries` in this code and show all of it:\n\n{CODE}",
    f"Add type hints to this code and show all of it:\n\n{CODE}",
    f"Add a docstring and comments to this code and show all of it:\n\n{CODE}",
    f"Change this code so that it skips empty lines, and show all of it:\n\n{CODE}",
    "Repeat the following sentence ten times: The quick brown fox jumps over the lazy dog.",
    "Count from one to one hundred in words.",
    "Write a poem of eight stanzas whose last line is always the same.",
    "Translate into French: Good morning. Where is the station? I would like two tickets, please.",
    "Write a log file of a web server with twenty requests.",
    "Write the minutes of a meeting of five people about moving the office.",
    "Write ten multiple choice questions about geography with four answers each.",
    "Write step by step instructions for changing a tyre, with a list of tools first.",
)  # fmt: skip


def answers(model: str, n_ctx: int, most: int, threads: int) -> list[list[int]]:
    """For each prompt and temperature the ids of the question and its answer."""
    import llama_cpp

    llama: Any = llama_cpp.Llama(
        model, n_ctx=n_ctx, n_threads=threads, n_threads_batch=threads, seed=SEED, verbose=False
    )
    end = llama.token_eos()
    found = []
    jobs = [(prompt, temperature) for temperature in TEMPERATURES for prompt in PROMPTS]
    for number, (prompt, temperature) in enumerate(tqdm(jobs, unit="answer")):
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = llama.tokenize(text.encode(), add_bos=False, special=True)
        llama.reset()
        llama.set_seed(SEED + number)
        said: list[int] = []
        stream = llama.generate(ids, temp=temperature, top_k=40, top_p=0.95, repeat_penalty=1.0)
        with contextlib.closing(stream):
            for token in stream:
                said.append(int(token))
                if token == end or len(said) == most:
                    break
        found.append([*ids, *said])
    llama.close()
    return found


@click.command(help=(__doc__ or "").split("\n\n", 1)[0])
@click.option("-m", "--model", required=True, help="A GGUF model with a ChatML template.")
@click.option("-o", "--output", type=Path, required=True, help="Token file, raw .u16 or .u32.")
@click.option("--most", type=click.IntRange(1), default=1000, show_default=True,
              help="Most tokens in one answer.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(model: str, output: Path, most: int, threads: int) -> None:
    kinds = {".u16": np.uint16, ".u32": np.uint32}
    if output.suffix not in kinds:
        raise click.ClickException(f"found {output}, expected a name that ends in .u16 or .u32")
    documents = answers(model, most + 512, most, threads)
    ids = np.array([token for document in documents for token in document])
    if ids.max() > np.iinfo(kinds[output.suffix]).max:
        raise click.ClickException(f"found id {ids.max()}, expected .u32 for this vocabulary")
    ids.astype(kinds[output.suffix]).tofile(output)
    click.echo(f"{output}: {len(ids):,} tokens of {len(documents)} answers and their prompts")


if __name__ == "__main__":
    main()
