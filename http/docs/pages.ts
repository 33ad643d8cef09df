import { existsSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { PACKAGE_FOLDER } from '../../src/runtime/package-folder.ts';
import { SCRIPT } from './page-script.ts';

/** Links of the side navigation, under a heading. */
interface MenuGroup {
  readonly title: string;
  readonly links: readonly { readonly href: string; readonly text: string }[];
}

export interface Page {
  readonly path: string;
  readonly title: string;
  /** What is on this page. */
  readonly menu: readonly MenuGroup[];
  readonly main: Html;
}

/** What the pages have in common. */
export interface Frame {
  readonly chapters: readonly Pick<ReferenceText, 'path' | 'title'>[];
  /** The wire door's host, if it is another than that of the pages, and its port. */
  readonly wire: { readonly host: string | undefined; readonly port: number };
}

/** A page without external resources. It can be read without its script. */
export function renderPage({ path, title, menu, main }: Page, { chapters, wire }: Frame): Buffer {
  const all: MenuGroup[] = [{ title: 'Postern', links: [{ path: '/docs', title: 'API' }, ...chapters].map(toLink) }, ...menu];
  const page = html`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title} – Postern</title><style>${new Html(STYLE)}</style></head>
<body data-wire="${wire.host ?? ''}|${wire.port}">
<a class="skip" href="#main">To the text</a>
<nav class="menu" aria-label="Pages and sections"><details open><summary>Contents</summary>
<div class="tools"></div>
${all.map((group) => menuGroup(group, path))}
</details></nav>
<main id="main">
${main}
</main>
<script>${new Html(SCRIPT)}</script>
</body>
</html>
`;
  return Buffer.from(page.text);
}

function toLink({ path, title }: Pick<ReferenceText, 'path' | 'title'>) {
  return { href: path, text: title };
}

function menuGroup({ title, links }: MenuGroup, here: string): Html {
  const current = new Html(' aria-current="page"');
  return html`<h2>${title}</h2><ul>${links.map(({ href, text }) => html`<li><a href="${href}"${href === here ? current : ''}>${text}</a></li>`)}</ul>\n`;
}

interface Heading {
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

/** A reference text, as Markdown. */
export interface ReferenceText {
  readonly path: string;
  readonly title: string;
  readonly markdown: string;
}

/** The path of each text, and its file. */
const FILES: ReadonlyMap<string, string> = new Map([
  ['/docs/start', 'README.md'],
  ['/docs/http', 'http/README.md'],
  ['/docs/wire', 'proxy/README.md'],
  ['/docs/organizations', 'src/router/README.md'],
  ['/docs/operating', 'docker/README.md'],
  ['/docs/benchmarks', 'test/bench/README.md'],
]);
const PATHS: ReadonlyMap<string, string> = new Map([...FILES].map(([path, file]) => [file, path]));

/** The reference texts of this version; none in a package without them. */
export function referenceTexts(): ReferenceText[] {
  return [...FILES].flatMap(([path, file]) => {
    const url = new URL(file, PACKAGE_FOLDER);
    if (!existsSync(url)) return [];
    const markdown = withServedLinks(withoutImages(readFileSync(url, 'utf8')), file);
    return [{ path, title: /^# (.+)$/m.exec(markdown)?.[1] ?? path, markdown }];
  });
}

/** Those that stand alone: they are not served. */
function withoutImages(markdown: string): string {
  return markdown.replace(/^!\[.*\n\n/gm, '');
}

/** Links between the texts are replaced by their paths here; links to other files stay as they are. */
function withServedLinks(markdown: string, file: string): string {
  return markdown.replace(/\]\(([\w./]+)/g, (link, target: string) => {
    const path = PATHS.get(posix.join(posix.dirname(file), target));
    return path === undefined ? link : `](${path}`;
  });
}

/** Text has a contrast of 4.5 or more, and what can be operated one of 3, in both themes (WCAG 2.2, AA). */
export const STYLE = `
:root { color-scheme: light dark; --text: #1b1d21; --muted: #565b63; --back: #fff; --soft: #f2f4f7; --line: #d5d9df; --edge: #767c86; --accent: #0b57d0; --bad: #b3261e; --good: #146c2e }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --muted: #a9afb8; --back: #14161a; --soft: #1f2329; --line: #383e47; --edge: #8b919b; --accent: #8ab4f8; --bad: #f2b8b5; --good: #8fd7a3 } }
* { box-sizing: border-box }
html { scroll-padding-top: 1rem }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back); overflow-wrap: anywhere }
a { color: var(--accent) } a:focus-visible, button:focus-visible, input:focus-visible, textarea:focus-visible, summary:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
.skip { position: absolute; left: -999px } .skip:focus { left: .5rem; top: .5rem; background: var(--back); padding: .5rem }
.menu { padding: 1rem; border-bottom: 1px solid var(--line) } .menu > details > summary { font-weight: 600 } .menu ul { list-style: none; margin: .25rem 0 1rem; padding: 0 } .menu li { margin: .1rem 0; font-size: .9rem; line-height: 1.4 } .menu a { text-decoration: none; display: block; padding: .15rem .25rem; border-radius: 4px } .menu a:hover { background: var(--soft) } .menu a[aria-current] { color: var(--text); font-weight: 600 } .menu h2 { font-size: .8rem; margin: .75rem 0 .1rem; color: var(--muted); border: 0; padding: 0; text-transform: uppercase; letter-spacing: .04em }
main { padding: 1rem; min-width: 0; max-width: 54rem }
h1, h2, h3, h4 { line-height: 1.25 } h2 { margin-top: 3rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line) } h3 { margin-top: 2.25rem } h4 { margin: 1.25rem 0 .25rem } h3 code { font-size: 1em; font-weight: 600 } li > p { margin: .25rem 0 }
code, pre, textarea, .path { font: .875em/1.5 ui-monospace, monospace } pre { margin: 0; background: var(--soft); padding: .75rem 1rem; overflow-x: auto; border-radius: 6px; overflow-wrap: normal } pre code { font-size: .85rem }
.code { position: relative; margin: .5rem 0 1rem } .code button { position: absolute; top: .35rem; right: .35rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .92em } td, th { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); overflow-wrap: normal; min-width: 6rem } .muted, .kind { color: var(--muted) } .kind { margin: .75rem 0 0; font-size: .85rem }
summary { cursor: pointer; margin: .5rem 0 } label { display: block; font-size: .85rem; color: var(--muted); margin-top: .5rem }
input, textarea { width: 100%; color: var(--text); background: var(--back); border: 1px solid var(--edge); border-radius: 4px; padding: .35rem .5rem; font-size: .9rem }
button { font: inherit; font-size: .85rem; color: var(--text); background: var(--back); border: 1px solid var(--edge); border-radius: 4px; padding: .15rem .6rem; cursor: pointer; min-height: 1.75rem } button[aria-selected=true] { background: var(--text); color: var(--back); border-color: var(--text) }
[role=tablist] { display: flex; flex-wrap: wrap; gap: .35rem; margin-top: 1rem } .run { border: 1px solid var(--line); border-radius: 6px; padding: .25rem .75rem .75rem; margin: .5rem 0 1rem } .run button { margin-top: .5rem } .run p { margin: .25rem 0 0 } .bad { color: var(--bad) } .good { color: var(--good) }
.error h3 { margin: 1.5rem 0 .25rem } .error p { margin: .25rem 0 } :target > h3, h2:target, h3:target { background: var(--soft) }
@media (max-width: 40rem) { .code pre { padding-top: 2.5rem } table, tr, td { display: block } tr { border-bottom: 1px solid var(--line); padding: .35rem 0 } td { border: 0; padding: .05rem 0; overflow-wrap: anywhere } th { display: none } }
[hidden] { display: none !important }
@media (min-width: 60rem) { body { display: grid; grid-template-columns: 18rem minmax(0, 1fr) } .menu { position: sticky; top: 0; height: 100vh; overflow-y: auto; border-bottom: 0; border-right: 1px solid var(--line) } main { padding: 1rem 2rem 6rem } }
`;
