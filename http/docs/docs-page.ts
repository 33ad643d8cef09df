import { LINES_TYPE } from '../plugins/accept-header.ts';
import type { JsonSchema } from './json-schema.ts';
import type { MediaType, OpenApiDocument, OperationObject, Parameter, ResponseObject } from './openapi.ts';
import type { ReferenceText } from './reference-texts.ts';

/** Text that is already HTML; all other text is escaped. */
class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = string | number | Html | readonly Html[];

function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(String.raw({ raw: strings }, ...parts.map(render)));
}

function render(part: Part): string {
  if (part instanceof Html) return part.text;
  if (Array.isArray(part)) return part.map(render).join('');
  return String(part).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

export const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2563eb }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 6rem }
h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line) } h3 { margin-top: 2.25rem }
code, pre { font: .875em/1.5 ui-monospace, monospace } pre { background: var(--soft); padding: .75rem 1rem; overflow-x: auto; border-radius: 6px }
table { border-collapse: collapse; width: 100%; font-size: .92em } td, th { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line) }
a { color: var(--accent) } nav ul { list-style: none; padding: 0; columns: 2 } .method { color: var(--accent) }
summary { cursor: pointer; margin: .5rem 0 }
`;

/** The API for people: one page, made from the OpenAPI document, without external resources. It links to the reference texts. */
export function docsPage(document: OpenApiDocument, texts: readonly Pick<ReferenceText, 'path' | 'title'>[]): string {
  const { info, tags, paths } = document;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ title: `${method.toUpperCase()} ${path}`, path, method, operation })),
  );
  const of = (tag: string) => operations.filter(({ operation }) => operation.tags.includes(tag));
  return html`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${info.title} API</title><style>${new Html(STYLE)}</style></head>
<body>
<h1>${info.title} API</h1>
<p>${info.description}</p>
<p>The same for programs: <a href="/api/openapi.json">/api/openapi.json</a>.</p>
${referenceLinks(texts)}
<nav><ul>${operations.map(({ title, operation }) => html`<li><a href="#${operation.operationId}"><code>${title}</code></a></li>`)}<li><a href="#errors">Errors</a></li></ul></nav>
${tags.map(({ name }) => html`<h2>${name}</h2>${of(name).map(operationSection)}`)}
${errorsSection(document)}
</body>
</html>
`.text;
}

function referenceLinks(texts: readonly Pick<ReferenceText, 'path' | 'title'>[]): Html {
  if (texts.length === 0) return html``;
  return html`<p>Reference: ${texts.map(({ path, title }, i) => html`${i === 0 ? '' : ' · '}<a href="${path}">${title}</a>`)}</p>`;
}

interface Entry {
  readonly title: string;
  readonly path: string;
  readonly method: string;
  readonly operation: OperationObject;
}

function operationSection(entry: Entry): Html {
  const { operation, title } = entry;
  const { parameters = [], requestBody } = operation;
  const body = requestBody?.content['application/json'];
  return html`<section id="${operation.operationId}">
<h3><code>${title}</code></h3>
<p><strong>${operation.summary}.</strong> ${operation.description ?? ''} ${operation.security.length === 0 ? 'Needs no key.' : ''}</p>
${parametersSection('Query string', parameters, 'query')}
${parametersSection('Headers', parameters, 'header')}
${body === undefined ? '' : html`<h4>Request</h4>${fieldsTable(body.schema)}`}
<pre>${curl(entry, body)}</pre>
${Object.entries(operation.responses).map(([status, response]) => successSection(status, response))}
<p>Errors: ${Object.entries(operation.responses).map(([status, { content }]) => codeLinks(status, content['application/problem+json']))}</p>
</section>
`;
}

function parametersSection(title: string, parameters: readonly Parameter[], place: Parameter['in']): Html {
  const shown = parameters.filter((parameter) => parameter.in === place);
  if (shown.length === 0) return html``;
  const properties = Object.fromEntries(
    shown.map(({ name, schema, description }) => [name, { ...schema, ...(description === undefined ? {} : { description }) }]),
  );
  return html`<h4>${title}</h4>${fieldsTable({ properties })}`;
}

function successSection(status: string, { description, headers = {}, content }: ResponseObject): Html {
  const media = content['application/json'];
  if (media === undefined) return html``;
  const lines = content[LINES_TYPE];
  return html`<h4>${status}</h4><p>${description}</p>${examplesOf(media).map((value) => html`<pre>${JSON.stringify(value, null, 2)}</pre>`)}
${lines === undefined ? '' : html`<p>As <code>${LINES_TYPE}</code>:</p>${examplesOf(lines).map((value) => html`<pre>${String(value)}</pre>`)}`}
${Object.entries(headers).map(([name, header]) => html`<p>Header <code>${name}</code>: ${header.description}</p>`)}
<details><summary>Fields</summary>${fieldsTable(media.schema)}</details>`;
}

function codeLinks(status: string, media: MediaType | undefined): Html {
  const codes = Object.keys(media?.examples ?? {});
  if (codes.length === 0) return html``;
  return html`<strong>${status}</strong> ${codes.map((code) => html`<a href="#error-${code}"><code>${code}</code></a> `)}`;
}

function curl({ method, path, operation }: Entry, body: MediaType | undefined): string {
  const [example] = body === undefined ? [] : examplesOf(body);
  const lines = [
    `curl ${method === 'get' ? '' : `-X ${method.toUpperCase()} `}http://127.0.0.1:8080${path}`,
    ...(operation.security.length === 0 ? [] : [`-H "Authorization: Bearer $API_KEY"`]),
    ...(example === undefined ? [] : ["-H 'content-type: application/json'", `-d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`]),
  ];
  return lines.join(' \\\n  ');
}

function examplesOf({ examples }: MediaType): unknown[] {
  return Object.values(examples).map(({ value }) => value);
}

function fieldsTable(schema: JsonSchema): Html {
  const rows = fieldsOf(schema, '');
  if (rows.length === 0) return html`<p>No fields.</p>`;
  return html`<table><tr><th>Field</th><th>Type</th><th></th></tr>${rows.map(([name, type, text]) => html`<tr><td><code>${name}</code></td><td>${type}</td><td>${text}</td></tr>`)}</table>`;
}

/** Name, type and meaning of every field; those of nested objects have dotted names. */
function fieldsOf({ properties = {}, required = [] }: JsonSchema, prefix: string): (readonly [string, string, string])[] {
  return Object.entries(properties).flatMap(([key, field]) => {
    if (typeof field === 'boolean') return [];
    const name = prefix + key;
    const optional = required.includes(key) || field.default !== undefined ? '' : 'optional';
    const fallback = field.default === undefined ? '' : `default ${JSON.stringify(field.default)}`;
    const meaning = [field.description, limitsOf(field), fallback || optional].filter(Boolean).join('; ');
    return [[name, typeOf(field), meaning] as const, ...fieldsOf(field, `${name}.`), ...fieldsOf(itemOf(field), `${name}[].`)];
  });
}

function itemOf({ items }: JsonSchema): JsonSchema {
  return typeof items === 'object' && !Array.isArray(items) ? (items as JsonSchema) : {};
}

function typeOf(field: JsonSchema): string {
  if (field.enum !== undefined) return field.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (field.const !== undefined) return JSON.stringify(field.const);
  if (field.anyOf !== undefined)
    return [...new Set(field.anyOf.map((one) => (typeof one === 'boolean' ? 'any' : typeOf(one))))].join(' | ');
  if (field.type === 'array') return `${typeOf(itemOf(field))}[]`;
  return field.format ?? (field.type === undefined ? 'any' : String(field.type));
}

function limitsOf({ minLength, maxLength, minimum, maximum, minItems, maxItems }: JsonSchema): string {
  const range = (from: number | undefined, to: number | undefined, unit: string) => {
    if (to !== undefined && to < Number.MAX_SAFE_INTEGER)
      return `${from === undefined ? 'at most ' : `${from} to `}${to.toLocaleString('en')}${unit}`;
    return '';
  };
  return [range(minLength, maxLength, ' characters'), range(minimum, maximum, ''), range(minItems, maxItems, ' items')]
    .filter(Boolean)
    .join('; ');
}

function errorsSection(document: OpenApiDocument): Html {
  const rows = Object.entries(document['x-errors']).map(
    ([code, { status, title, retryable }]) =>
      html`<tr id="error-${code}"><td><code>${code}</code></td><td>${status}</td><td>${title}</td><td>${retryable ? 'retryable' : ''}</td></tr>`,
  );
  return html`<h2 id="errors">Errors</h2>
<p>Sent as <code>application/problem+json</code>. Retryable: nothing has happened, and the same request may succeed later.</p>
<table><tr><th>Code</th><th>Status</th><th>Title</th><th></th></tr>${rows}</table>
<h3>Fields</h3>${fieldsTable(document.components.schemas.Problem ?? {})}`;
}
