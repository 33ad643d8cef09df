import { copyBytes } from '../../runtime/bytes.ts';
import type { JsonBuffer } from './buffer.ts';
import { type CivilDay, civilFromDays, daysFromCivil } from './day-numbers.ts';
import { encodeText } from './scalars.ts';
import type { ValueEncoder } from './value-encoder.ts';

/*
 * Times have DateStyle ISO (see output-settings.ts): `2024-01-02 03:04:05.123456+05:30 BC`, with up to six digits of
 * a second, an offset of hours, minutes and, for local mean times, seconds. Years have four digits or more. Other
 * values, such as `infinity`, are passed on as Postgres wrote them.
 * https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-DATETIME-OUTPUT
 */

/** RFC 3339 in UTC with microseconds: `"2024-01-02T03:04:05.123456Z"`. Beyond RFC 3339: longer years, and ` BC` at the end. */
export const encodeTimestamptz: ValueEncoder = (out, source, start, end) => {
  if (isUtc(source, end) && copyCommonTimestamp(out, source, start, end - UTC.length, Z)) return;
  const time = readTimestamp(source, start, end);
  if (time?.offsetS === undefined) encodeText(out, source, start, end);
  else out.text(format(shiftToUtc(time, time.offsetS), 'Z'));
};

/** As timestamptz, without a zone: `"2024-01-02T03:04:05.123456"`. */
export const encodeTimestamp: ValueEncoder = (out, source, start, end) => {
  if (copyCommonTimestamp(out, source, start, end, undefined)) return;
  const time = readTimestamp(source, start, end);
  if (time === undefined || time.offsetS !== undefined) encodeText(out, source, start, end);
  else out.text(format(time, ''));
};

const [QUOTE, DASH, COLON, SPACE, DOT, ZERO, C, T, Z] = [0x22, 0x2d, 0x3a, 0x20, 0x2e, 0x30, 0x43, 0x54, 0x5a];
const UTC = Buffer.from('+00');
const SECONDS_BYTES = '2024-01-02 03:04:05'.length;
const MICROSECONDS_BYTES = '2024-01-02 03:04:05.123456'.length;

function isUtc(source: Uint8Array, end: number): boolean {
  return source[end - 3] === UTC[0] && source[end - 2] === ZERO && source[end - 1] === ZERO;
}

/** The common case: a year of four digits, AD, no offset. Copied byte by byte, and padded to six digits of a second. */
function copyCommonTimestamp(out: JsonBuffer, source: Uint8Array, start: number, end: number, zone: number | undefined): boolean {
  const length = end - start;
  if (length < SECONDS_BYTES || length > MICROSECONDS_BYTES || (length > SECONDS_BYTES && source[start + SECONDS_BYTES] !== DOT))
    return false;
  if (source[start + 4] !== DASH || source[start + 7] !== DASH || source[start + 10] !== SPACE) return false;
  // A time with ` BC` may be as long as one without and with more digits of a second.
  if (source[start + 13] !== COLON || source[start + 16] !== COLON || source[end - 1] === C) return false;
  out.reserve(MICROSECONDS_BYTES + 3);
  const at = out.length + 1;
  out.bytes[out.length] = QUOTE;
  copyBytes(source, start, end, out.bytes, at);
  out.bytes[at + 10] = T;
  out.bytes[at + SECONDS_BYTES] = DOT;
  for (let digit = at + Math.max(length, SECONDS_BYTES + 1); digit < at + MICROSECONDS_BYTES; digit++) out.bytes[digit] = ZERO;
  out.length = at + MICROSECONDS_BYTES;
  if (zone !== undefined) out.bytes[out.length++] = zone;
  out.bytes[out.length++] = QUOTE;
  return true;
}

interface Timestamp extends CivilDay {
  /** The time of day. */
  readonly second: number;
  readonly microsecond: string;
  /** Seconds east of Greenwich; undefined for a time without a zone. */
  readonly offsetS: number | undefined;
}

const LAYOUT = /^(\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?$/;
const LONGEST_BYTES = 48;

function readTimestamp(source: Uint8Array, start: number, end: number): Timestamp | undefined {
  if (end - start > LONGEST_BYTES) return undefined;
  const parts = LAYOUT.exec(String.fromCharCode(...source.subarray(start, end)));
  if (parts === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction = '', sign, zoneHours, zoneMinutes = 0, zoneSeconds = 0, era] = parts;
  const zoneS = Number(zoneHours) * 3_600 + Number(zoneMinutes) * 60 + Number(zoneSeconds);
  return {
    year: era === undefined ? Number(year) : 1 - Number(year),
    month: Number(month),
    day: Number(day),
    second: Number(hour) * 3_600 + Number(minute) * 60 + Number(second),
    microsecond: fraction.padEnd(6, '0'),
    offsetS: sign === undefined ? undefined : sign === '-' ? -zoneS : zoneS,
  };
}

const DAY_S = 86_400;

function shiftToUtc(time: Timestamp, offsetS: number): Timestamp {
  const second = time.second - offsetS;
  const days = Math.floor(second / DAY_S);
  return { ...time, ...civilFromDays(daysFromCivil(time) + days), second: second - days * DAY_S };
}

function format({ year, month, day, second, microsecond }: Timestamp, zone: string): string {
  const shownYear = String(year > 0 ? year : 1 - year).padStart(4, '0');
  const clock = [second / 3_600, (second / 60) % 60, second % 60].map((part) => twoDigits(Math.floor(part))).join(':');
  return `"${shownYear}-${twoDigits(month)}-${twoDigits(day)}T${clock}.${microsecond}${zone}${year > 0 ? '' : ' BC'}"`;
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}
