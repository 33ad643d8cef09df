/** Text that is already HTML; all other text is escaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = string | number | Html | readonly Html[];

export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(String.raw({ raw: strings }, ...parts.map(render)));
}

function render(part: Part): string {
  if (part instanceof Html) return part.text;
  if (Array.isArray(part)) return part.map(render).join('');
  return String(part).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

/** Text to copy; the page's script adds a button. */
export function codeBlock(text: string): Html {
  return html`<div class="code"><pre tabindex="0"><code>${text}</code></pre></div>`;
}

/** A table is scrolled by itself where it is wider than the page. */
export function scrolled(table: Html): Html {
  return html`<div class="scroll" tabindex="0">${table}</div>`;
}
