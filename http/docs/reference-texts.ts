import { existsSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { PACKAGE_FOLDER } from '../../src/runtime/package-folder.ts';

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
