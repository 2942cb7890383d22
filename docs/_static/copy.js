// A button on every block of code, but not of output, that copies what is to be typed: of a session, the lines behind ">>> " and "... ".
"use strict";

function typed(block) {
  const lines = block.textContent.replace(/\n$/, "").split("\n");
  const prompt = /^(>>> |\.\.\. |>>>$|\.\.\.$)/;
  const session = lines.some((line) => prompt.test(line));
  return (session ? lines.filter((line) => prompt.test(line)).map((line) => line.replace(prompt, "")) : lines).join("\n");
}

async function copy(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text);
  }
  const area = document.createElement("textarea"); // pages that were opened as files have no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div:not(.highlight-text) > div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      await copy(typed(block.querySelector("pre")));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    block.append(button);
  }
});
