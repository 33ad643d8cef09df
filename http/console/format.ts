const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** `12.3 MB` */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1_000 && unit < UNITS.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** `1,234,567` */
export function formatCount(count: number): string {
  return count.toLocaleString('en-US');
}

/** `0.91 ms`, `12 ms`, `3.4 s`, `2 min 5 s` */
export function formatDuration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}

/** What SQL allows as a shorter name of a type, and names that only the catalogs have. */
const SHORTER: readonly (readonly [RegExp, string])[] = [
  [/^public\./, ''],
  [/^time(stamp)?(\(\d+\))? without time zone/, 'time$1$2'],
  [/^time(stamp)?(\(\d+\))? with time zone/, 'time$1tz$2'],
  [/^(character varying)/, 'varchar'],
  [/^(character|bpchar)/, 'char'],
  [/^int2(?!\w)/, 'smallint'],
  [/^int4(?!\w)/, 'integer'],
  [/^int8(?!\w)/, 'bigint'],
  [/^bool(?!\w)/, 'boolean'],
  [/^float4(?!\w)/, 'real'],
  [/^(float8|double precision)(?!\w)/, 'double'],
];

/** The name of a type where there is little space, the same wherever it comes from: `timestamptz`, `bigint`. */
export function formatType(type: string): string {
  const found = SHORTER.find(([pattern]) => pattern.test(type));
  return found === undefined ? type : type.replace(...found);
}

/** `2025-01-31 09:30:00`, in the time of this browser. */
export function formatTime(iso: string): string {
  const date = new Date(iso);
  const two = (part: number) => String(part).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** `5 min ago`, `in 3 h` */
export function formatAgo(iso: string, now = Date.now()): string {
  const ms = now - new Date(iso).getTime();
  const text = spanOf(Math.abs(ms));
  if (text === '') return 'now';
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

function spanOf(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return ms < 5_000 ? '' : `${Math.round(ms / 1_000)} s`;
  if (minutes < 60) return `${minutes} min`;
  return minutes < 48 * 60 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1_440)} days`;
}

/** `12.3 %` */
export function formatShare(share: number): string {
  if (share > 0 && share < 0.0005) return '< 0.1 %';
  return `${(share * 100).toFixed(1)} %`;
}

/** Whether a text has all the words. */
export function hasWords(text: string, words: string): boolean {
  const lower = text.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => lower.includes(word));
}
