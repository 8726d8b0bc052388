"""Execute the walkthrough's notebooks, `examples/walkthrough.ipynb` and the Chinese one, in place.

    pip install -e ".[notebooks]"
    python examples/book/walkthrough_notebook.py

Both take a published sentence through one head of `english`, the small GPT-2 in the package, with
the same code. Their prose names no figure of the model, so that only the outputs change when the
model does.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent
FILES = {"en": EXAMPLES / "walkthrough.ipynb", "zh": EXAMPLES / "zh" / "walkthrough.ipynb"}
COLOURS = 96  # of a picture's PNG, so that a notebook stays small


def smaller(png: str) -> str:
    """A picture in few colours, in base64 as it came."""
    from PIL import Image

    file = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(COLOURS).save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def for_git(notebook: Any) -> Any:
    """An executed notebook, with each picture once, and without times and versions."""
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if data := output.get("data"):
                data.pop("text/html", None)  # GitHub drops its styles; pictures are PNGs as well
                if "image/png" in data:
                    data["image/png"] = smaller(data["image/png"])
    return notebook


def main() -> None:
    """Execute both notebooks and write them."""
    import nbformat
    from nbclient import NotebookClient

    for language, file in FILES.items():
        os.environ["ATTNLAB_LANGUAGE"] = language  # which the kernel inherits
        notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
        NotebookClient(notebook, kernel_name="python3").execute()
        nbformat.write(for_git(notebook), file)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
