import { codeBlock, Html, html, scrolled } from './html.ts';

export interface Heading {
  readonly id: string;
  readonly text: string;
}

/** The part of Markdown that the reference texts use. Links to files that are not served become text. */
export function renderMarkdown(markdown: string): { readonly body: Html; readonly headings: readonly Heading[] } {
  const headings: Heading[] = [];
  const blocks: Html[] = [];
  const lines = markdown.split('\n');
  for (let at = 0; at < lines.length; ) {
    const end = blockEnd(lines, at);
    const block = lines.slice(at, end);
    at = end;
    const heading = /^(#{1,3}) (.*)$/.exec(block[0] ?? '');
    if (heading === null) blocks.push(renderBlock(block));
    else blocks.push(renderHeading(heading[1]?.length ?? 1, heading[2] ?? '', headings));
  }
  return { body: new Html(blocks.map(({ text }) => text).join('\n')), headings };
}

/** The line after the block that begins at this line. */
function blockEnd(lines: readonly string[], at: number): number {
  const first = lines[at] ?? '';
  if (first.startsWith('```')) {
    const close = lines.indexOf('```', at + 1);
    return close < 0 ? lines.length : close + 1;
  }
  if (first.startsWith('#') || first === '') return at + 1;
  if (first.startsWith('    '))
    return endWhere(lines, at, (line, next) => !line.startsWith('    ') && !(line === '' && next.startsWith('    ')));
  const ends = first.startsWith('|') ? (line: string) => !line.startsWith('|') : endsText;
  return endWhere(
    lines,
    at,
    first.startsWith('- ') ? (line, next) => (line === '' ? !/^ *- | {2}\S/.test(next) : /^(?:#|\||```)/.test(line)) : ends,
  );
}

function endsText(line: string): boolean {
  return line === '' || /^(?:#|- |\||```)/.test(line);
}

function endWhere(lines: readonly string[], at: number, ends: (line: string, next: string) => boolean): number {
  let end = at + 1;
  while (end < lines.length && !ends(lines[end] ?? '', lines[end + 1] ?? '')) end += 1;
  return end;
}

function renderHeading(level: number, text: string, headings: Heading[]): Html {
  const plain = text.replaceAll('`', '');
  const id = plain
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
  if (level === 2) headings.push({ id, text: plain });
  return new Html(`<h${level} id="${id}">${inline(text).text}</h${level}>`);
}

function renderBlock(block: readonly string[]): Html {
  const first = block[0] ?? '';
  if (first === '') return html``;
  if (first.startsWith('```')) return codeBlock(block.slice(1, -1).join('\n'));
  if (first.startsWith('    ')) return codeBlock(block.map((line) => line.slice(4)).join('\n'));
  if (first.startsWith('|')) return renderTable(block);
  if (first.startsWith('- ')) return renderList(block);
  return html`<p>${inline(block.join('\n'))}</p>`;
}

/** Items hold blocks, which are indented by two. */
function renderList(lines: readonly string[]): Html {
  const items: string[][] = [];
  for (const line of lines) {
    if (line.startsWith('- ')) items.push([line.slice(2)]);
    else items.at(-1)?.push(line.replace(/^ {2}/, ''));
  }
  return html`<ul>${items.map((item) => html`<li>${renderMarkdown(item.join('\n')).body}</li>`)}</ul>`;
}

function renderTable([head = '', , ...rows]: readonly string[]): Html {
  const cells = (row: string) =>
    row
      .replace(/^\||\|$/g, '')
      .split(/(?<!\\)\|/)
      .map((cell) => inline(cell.trim().replaceAll('\\|', '|')));
  const headings = cells(head);
  return scrolled(
    html`<table>${headings.some(({ text }) => text !== '') ? html`<tr>${headings.map((cell) => html`<th>${cell}</th>`)}</tr>` : ''}${rows.map(
      (row) => html`<tr>${cells(row).map((cell) => html`<td>${cell}</td>`)}</tr>`,
    )}</table>`,
  );
}

const INLINE = /`([^`]+)`|\[((?:[^\][]|\[[^\][]*\])+)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|<(https:[^<>\s]+)>/;

function inline(text: string): Html {
  const found = INLINE.exec(text);
  if (found === null) return html`${text}`;
  const [whole, code, label, target, strong, emphasis, address] = found;
  const rest = inline(text.slice(found.index + whole.length));
  return html`${text.slice(0, found.index)}${element(code, label, target, strong, emphasis ?? '', address)}${rest}`;
}

function element(code?: string, label?: string, target?: string, strong?: string, emphasis = '', address?: string): Html {
  if (code !== undefined) return html`<code>${code}</code>`;
  if (address !== undefined) return html`<a href="${address}">${address}</a>`;
  if (strong !== undefined) return html`<strong>${inline(strong)}</strong>`;
  if (label === undefined || target === undefined) return html`<em>${inline(emphasis)}</em>`;
  return /^(?:#|\/docs|https:)/.test(target) ? html`<a href="${target}">${inline(label)}</a>` : inline(label);
}
