import { LINES_TYPE, MARKDOWN_TYPE } from '../responses/media-types.ts';

const JSON_RANGE = 'application/json';
const CSV_RANGE = 'text/csv';
const HTML_TYPE = 'text/html';

/** In the form of one JSON document, of one document a line, or of comma-separated values. */
export type ResultForm = 'json' | 'lines' | 'csv';

/**
 * The form of a result that a caller prefers. Wildcards express no preference.
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.accept
 */
export function preferredForm(accept = ''): ResultForm {
  // Few clients accept another form than JSON, so nothing else is parsed for most.
  if (!/ndjson|csv/i.test(accept)) return 'json';
  const weights = new Map(accept.split(',').map(weighted));
  const [json = 0, lines = 0, csv = 0] = [JSON_RANGE, LINES_TYPE, CSV_RANGE].map((type) => weights.get(type));
  if (csv > Math.max(json, lines)) return 'csv';
  return lines > json ? 'lines' : 'json';
}

/** Whether a caller is a browser, rather than a program that asks for no format or for Markdown. */
export function prefersHtml(accept = ''): boolean {
  const weights = new Map(accept.split(',').map(weighted));
  return (weights.get(HTML_TYPE) ?? 0) > (weights.get(MARKDOWN_TYPE) ?? 0);
}

/** An element of a header that lists what a client takes, with its weight. @see https://www.rfc-editor.org/rfc/rfc9110#section-12.4.2 */
export function weighted(element: string): [name: string, weight: number] {
  const [name = '', ...parameters] = element.split(';').map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return [name, weight === undefined ? 1 : Number(weight) || 0];
}
