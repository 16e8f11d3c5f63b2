// The copy button of a console session copies its commands: not the prompts, and not what they print.
for (const code of document.querySelectorAll(".language-console code")) {
  const commands = [];
  for (const line of code.textContent.split("\n")) {
    if (line.startsWith("$ ")) {
      commands.push(line.slice(2));
    } else if (commands.at(-1)?.endsWith("\\")) {
      commands.push(line.replace(/^> /, ""));
    }
  }
  if (commands.length) {
    code.closest("pre").dataset.copy = commands.join("\n");
  }
}

// A keyboard can scroll tables that are wider than the page.
function makeTablesFocusable() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) {
      table.tabIndex = 0;
    } else {
      table.removeAttribute("tabindex");
    }
  }
}
addEventListener("load", makeTablesFocusable);
addEventListener("resize", makeTablesFocusable);
