import type { OperationObject } from '../openapi.ts';

export interface Sample {
  readonly language: 'curl' | 'fetch' | 'Python' | 'psql';
  readonly text: string;
}

/** A call to show. */
export interface SampledCall {
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
export function samplesOf(call: SampledCall): Sample[] {
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
