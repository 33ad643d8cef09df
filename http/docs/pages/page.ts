import type { ReferenceText } from '../reference-texts.ts';
import { Html, html } from './html.ts';
import { SCRIPT } from './page-script.ts';
import { STYLE } from './page-style.ts';

/** Links of the side navigation, under a heading. */
export interface MenuGroup {
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
