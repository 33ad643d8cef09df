import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { TestOrganization } from './doors.ts';
import type { TestService } from './service.ts';

export interface Example {
  readonly file: string;
  /** The heading above it. */
  readonly section: string;
  /** As its fence says; `curl` or `text` for an indented block. */
  readonly language: string;
  readonly text: string;
}

export const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** What a user reads, in that order: the examples of one may go on from those of another. */
export const DOCUMENTS = [
  'README.md',
  'http/README.md',
  'proxy/README.md',
  'src/router/README.md',
  'docker/README.md',
  'test/bench/README.md',
] as const;

export const readDocument = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

export const EXAMPLES: readonly Example[] = DOCUMENTS.flatMap((file) => examplesOf(file, readDocument(file)));

/** The organization that the first example makes. */
export const DOCUMENTED: TestOrganization = JSON.parse(textOf('Sign up', 'json'));

function examplesOf(file: string, markdown: string): Example[] {
  const examples: Example[] = [];
  let section = '';
  for (const [block, heading, language, fenced] of markdown.matchAll(/^#+ (.+)$|^```(\w*)\n([\s\S]*?)^```$|(?<=\n\n)(?:^ {4}.*\n)+/gm)) {
    if (heading !== undefined) section = heading;
    else if (fenced !== undefined) examples.push({ file, section, language: language ?? '', text: fenced });
    else examples.push({ file, section, language: block.startsWith('    curl ') ? 'curl' : 'text', text: block.replace(/^ {4}/gm, '') });
  }
  return examples;
}

/** The one example in this language under this heading, in whichever document; of several indented blocks, the first. */
export function textOf(section: string, language: string): string {
  const found = EXAMPLES.find((example) => example.section === section && example.language === language);
  if (found === undefined) throw new Error(`no document has an example in ${language} under "${section}"`);
  return found.text;
}

/** The same text for a test's ports and organization. */
export function atService(text: string, service: TestService, { id, apiKey }: TestOrganization): string {
  const local = text.replaceAll(DOCUMENTED.id, id).replaceAll(DOCUMENTED.apiKey, apiKey);
  return local.replace(/\b8080\b/g, new URL(service.httpUrl).port).replace(/\b6432\b/g, String(service.wirePort));
}

/** What the examples set with `export`. */
export function exportedVariables({ wirePort }: TestService, { id, apiKey }: TestOrganization) {
  return { PATH: process.env.PATH, ORG: id, API_KEY: apiKey, DATABASE_URL: `postgres://${id}:${apiKey}@127.0.0.1:${wirePort}/${id}` };
}
