import { ERRORS, type ErrorCode } from '../errors.ts';
import type { JsonSchema } from '../validation.ts';
import { ERROR_HELP } from './error-help.ts';
import type { MediaType, OpenApiDocument, OperationObject, Parameter, ResponseObject } from './openapi.ts';
import { codeBlock, type Html, html, type Page, scrolled } from './pages.ts';

/** The API for people, made from the OpenAPI document. */
export function referencePage(document: OpenApiDocument): Page {
  const { info, tags, paths } = document;
  const entries = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ title: `${method.toUpperCase()} ${path}`, path, method, operation })),
  );
  const of = (tag: string) => entries.filter(({ operation }) => operation.tags.includes(tag));
  return {
    path: '/docs',
    title: `${info.title} API`,
    menu: [
      ...tags.map(({ name }) => ({
        title: name,
        links: of(name).map(({ title, operation }) => ({ href: `#${operation.operationId}`, text: title })),
      })),
      { title: 'Errors', links: [{ href: '#errors', text: 'All errors' }] },
    ],
    main: html`<h1>${info.title} API</h1>
<p>${info.description}</p>
<p>The same for programs: <a href="/api/openapi.json">/api/openapi.json</a>.</p>
${tags.map(({ name }) => html`<div data-group><h2>${name}</h2>${of(name).map(operationSection)}</div>`)}
${errorsSection(document)}`,
  };
}

interface Entry {
  readonly title: string;
  readonly path: string;
  readonly method: string;
  readonly operation: OperationObject;
}

function operationSection(entry: Entry): Html {
  const { operation, title, path, method } = entry;
  const { parameters = [], requestBody } = operation;
  const media = requestBody?.content['application/json'];
  const [body] = media === undefined ? [] : examplesOf(media);
  const samples = samplesOf({ method, path, operation, body });
  return html`<section id="${operation.operationId}" data-section data-method="${method.toUpperCase()}" data-path="${path}"${attribute('key', operation.security.length > 0 ? '' : undefined)}${attribute('body', body === undefined ? undefined : JSON.stringify(body, null, 2))}${attribute('ask', question(entry))}>
<h3><code>${title}</code></h3>
<p><strong>${operation.summary}.</strong> ${operation.description ?? ''} ${operation.security.length === 0 ? 'Needs no key.' : ''}</p>
${parametersSection('Path', parameters, 'path')}
${parametersSection('Query string', parameters, 'query')}
${parametersSection('Headers', parameters, 'header')}
${media === undefined ? '' : html`<h4>Request</h4>${fieldsTable(media.schema)}`}
<div class="samples">${samples.map(sampleBlock)}</div>
${Object.entries(operation.responses).map(([status, response]) => successSection(status, response))}
<p>Errors: ${Object.entries(operation.responses).map(([status, { content }]) => codeLinks(status, content['application/problem+json']))}</p>
</section>
`;
}

function attribute(name: string, value: string | undefined): Html {
  return value === undefined ? html`` : html` data-${name}="${value}"`;
}

/** What the page asks before it runs a call that cannot be undone. */
function question({ method, operation: { operationId, summary } }: Entry): string | undefined {
  return method === 'delete' || operationId.startsWith('rotate') ? `${summary}? This cannot be undone.` : undefined;
}

function sampleBlock({ language, text }: Sample): Html {
  return html`<div class="sample" data-language="${language}"><p class="kind">${language}</p>${codeBlock(text)}</div>`;
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
  const alternatives = Object.entries(content).filter(([type]) => type !== 'application/json');
  return html`<h4>${status}</h4><p>${description}</p>${examplesOf(media).map((value) => codeBlock(JSON.stringify(value, null, 2)))}
${alternatives.map(([type, other]) => html`<p>As <code>${type}</code>:</p>${examplesOf(other).map((value) => codeBlock(String(value)))}`)}
${Object.entries(headers).map(([name, header]) => html`<p>Header <code>${name}</code>: ${header.description}</p>`)}
<details><summary>Fields</summary>${fieldsTable(media.schema)}</details>`;
}

function codeLinks(status: string, media: MediaType | undefined): Html {
  const codes = Object.keys(media?.examples ?? {});
  if (codes.length === 0) return html``;
  return html`<strong>${status}</strong> ${codes.map((code) => html`<a href="#error-${code}"><code>${code}</code></a> `)}`;
}

function examplesOf({ examples }: MediaType): unknown[] {
  return Object.values(examples).map(({ value }) => value);
}

function fieldsTable(schema: JsonSchema): Html {
  const rows = fieldsOf(schema, '');
  if (rows.length === 0) return html`<p>No fields.</p>`;
  return scrolled(
    html`<table><tr><th>Field</th><th>Type</th><th></th></tr>${rows.map(([name, type, text]) => html`<tr><td><code>${name}</code></td><td>${type}</td><td>${text}</td></tr>`)}</table>`,
  );
}

/** Name, type and meaning of every field; those of nested objects have dotted names. */
function fieldsOf({ properties = {}, required = [] }: JsonSchema, prefix: string): (readonly [string, string, string])[] {
  return Object.entries(properties).flatMap(([key, field]) => {
    if (typeof field === 'boolean') return [];
    const name = prefix + key;
    const optional = required.includes(key) || field.default !== undefined ? '' : 'optional';
    const fallback = field.default === undefined ? '' : `default ${JSON.stringify(field.default)}`;
    const meaning = [field.description?.replace(/\.$/, ''), limitsOf(field), fallback || optional].filter(Boolean).join('; ');
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

/** All errors: problem documents, and the replies of the other doors, refer to them. */
function errorsSection(document: OpenApiDocument): Html {
  const codes = (Object.keys(ERRORS) as ErrorCode[]).sort();
  return html`<div data-group><h2 id="errors">Errors</h2>
<p>Sent as <code>application/problem+json</code>. Retryable: nothing has happened, and the same request may succeed later.</p>
${codes.map(errorSection)}
<section id="problem" data-section><h3>Fields</h3>${fieldsTable(document.components.schemas.Problem ?? {})}</section></div>`;
}

function errorSection(code: ErrorCode): Html {
  const { status, title, retryable } = ERRORS[code];
  const { cause, cure } = ERROR_HELP[code];
  return html`<section class="error" id="error-${code}" data-section><h3><code>${code}</code></h3>
<p class="muted">${status} · ${title}${retryable === true ? ' · retryable' : ''}</p><p>${cause}</p><p><strong>What to do:</strong> ${cure}</p></section>
`;
}

interface Sample {
  readonly language: 'curl' | 'fetch' | 'Python' | 'psql';
  readonly text: string;
}

/** A call to show. */
interface SampledCall {
  readonly method: string;
  readonly path: string;
  readonly operation: Pick<OperationObject, 'security'>;
  /** The body; undefined: it has none. */
  readonly body: unknown;
}

/** The page's script puts the address that served it in the place of this one. */
const SAMPLE_ORIGIN = 'http://127.0.0.1:8080';
const PSQL = 'PGPASSWORD=$API_KEY psql -h 127.0.0.1 -p 6432 -U $ORG $ORG';

/** The same call in several languages. What is SQL is shown for psql too. */
function samplesOf(call: SampledCall): Sample[] {
  const sql = sqlOf(call);
  return [
    { language: 'curl', text: curl(call) },
    { language: 'fetch', text: fetchSample(call) },
    { language: 'Python', text: python(call) },
    ...(sql === undefined ? [] : [{ language: 'psql', text: `${PSQL} <<'SQL'\n${sql}\nSQL` } as const]),
  ];
}

function curl({ method, path, operation, body }: SampledCall): string {
  const lines = [
    `curl ${method === 'get' ? '' : `-X ${method.toUpperCase()} `}${SAMPLE_ORIGIN}${path}`,
    ...(needsKey(operation) ? [`-H "Authorization: Bearer $API_KEY"`] : []),
    ...(body === undefined ? [] : ["-H 'content-type: application/json'", `-d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`]),
  ];
  return lines.join(' \\\n  ');
}

function fetchSample({ method, path, operation, body }: SampledCall): string {
  const headers = [
    ...(needsKey(operation) ? ['    authorization: `Bearer ${' + 'process.env.API_KEY}`,'] : []),
    ...(body === undefined ? [] : ["    'content-type': 'application/json',"]),
  ];
  const options = [
    ...(method === 'get' ? [] : [`  method: '${method.toUpperCase()}',`]),
    ...(headers.length === 0 ? [] : ['  headers: {', ...headers, '  },']),
    ...(body === undefined ? [] : [`  body: JSON.stringify(${indented(JSON.stringify(body, null, 2), '  ')}),`]),
  ];
  const call = options.length === 0 ? '' : `, {\n${options.join('\n')}\n}`;
  return `const response = await fetch('${SAMPLE_ORIGIN}${path}'${call});\nconsole.log(response.status, await response.json());`;
}

function python({ method, path, operation, body }: SampledCall): string {
  const headers = [
    ...(needsKey(operation) ? ['        "Authorization": "Bearer " + os.environ["API_KEY"],'] : []),
    ...(body === undefined ? [] : ['        "Content-Type": "application/json",']),
  ];
  const lines = [
    'import json, os, urllib.request',
    '',
    'request = urllib.request.Request(',
    `    "${SAMPLE_ORIGIN}${path}",`,
    ...(method === 'get' ? [] : [`    method="${method.toUpperCase()}",`]),
    ...(headers.length === 0 ? [] : ['    headers={', ...headers, '    },']),
    ...(body === undefined ? [] : [`    data=json.dumps(${indented(pythonLiteral(body), '    ')}).encode(),`]),
    ')',
    'print(json.load(urllib.request.urlopen(request)))',
  ];
  return lines.join('\n');
}

/** JSON is Python where it has neither true, false nor null; those stand alone in a line or after a colon. */
function pythonLiteral(value: unknown): string {
  const words: Readonly<Record<string, string>> = { true: 'True', false: 'False', null: 'None' };
  return JSON.stringify(value, null, 4).replace(/^( *(?:"(?:[^"\\]|\\.)*": )?)(true|false|null)(,?)$/gm, (_line, before, word, after) =>
    [before, words[word], after].join(''),
  );
}

function sqlOf({ path, body }: SampledCall): string | undefined {
  const statements =
    path === '/api/transaction' ? (body as { statements?: unknown }).statements : path === '/api/query' ? [body] : undefined;
  if (!Array.isArray(statements)) return undefined;
  const lines = statements.map(({ sql, params = [] }: { sql: string; params?: unknown[] }, at) =>
    params.length === 0 ? `${sql};` : `PREPARE call${at} AS ${sql};\nEXECUTE call${at}(${params.map(quoted).join(', ')});`,
  );
  return (lines.length > 1 ? ['BEGIN;', ...lines, 'COMMIT;'] : lines).join('\n');
}

function quoted(value: unknown): string {
  return `'${String(value).replaceAll("'", "''")}'`;
}

function needsKey({ security }: Pick<OperationObject, 'security'>): boolean {
  return security.length > 0;
}

/** All lines but the first. */
function indented(text: string, by: string): string {
  return text.replaceAll('\n', `\n${by}`);
}
