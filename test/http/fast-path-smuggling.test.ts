import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Conversation, CUTS, Talks } from './talks.ts';

let talks: Talks;
beforeAll(async () => {
  talks = await Talks.start();
});
afterAll(() => talks.service.close());

/** What says how long a body is, in all the ways in which two readers were ever brought to disagree. */
const FRAMINGS: readonly string[] = [
  'Content-Length: LENGTH',
  'Content-Length: 0',
  'Content-Length: 5',
  'Content-Length: +LENGTH',
  'Content-Length: -LENGTH',
  'Content-Length: 0LENGTH',
  'Content-Length: 0xff',
  'Content-Length: LENGTH.0',
  'Content-Length: LENGTHe0',
  'Content-Length:LENGTH',
  'Content-Length:   LENGTH  ',
  'Content-Length:\tLENGTH',
  'Content-Length: LENGTH\t',
  'Content-Length: \vLENGTH',
  'Content-Length: \0LENGTH',
  'Content-Length: "LENGTH"',
  'Content-Length: LENGTH, LENGTH',
  'Content-Length: LENGTH, 5',
  'Content-Length: LENGTH;a',
  'Content-Length: LENGTH 5',
  'Content-Length : LENGTH',
  'Content-Length\t: LENGTH',
  'Content_Length: LENGTH',
  ' Content-Length: LENGTH',
  'Content-Length:\r\n LENGTH',
  'Content-Length: 5\r\n LENGTH',
  'Content-Length: 99999999999999999999999999',
  'Content-Length: 18446744073709551621',
  'Content-Length: LENGTH\r\nContent-Length: LENGTH',
  'Content-Length: LENGTH\r\nContent-Length: 5',
  'Content-Length: 5\r\nContent-Length: LENGTH',
  'Content-Length: LENGTH\r\ncontent-length: 5',
  'Content-Length: LENGTH\nContent-Length: 5',
  'Content-Length: LENGTH\r\n\r\nContent-Length: 5',
  'Content-Length: 5\n\nContent-Length: LENGTH',
  ...[
    'Transfer-Encoding: chunked',
    'transfer-encoding: CHUNKED',
    'Transfer-Encoding : chunked',
    'Transfer-Encoding\t: chunked',
    'Transfer-Encoding:\tchunked',
    'Transfer-Encoding:\vchunked',
    'Transfer-Encoding: \x0cchunked',
    'Transfer-Encoding: \0chunked',
    'Transfer-Encoding: chunked\0',
    'Transfer-Encoding: chunked ',
    'Transfer-Encoding: chunked\t',
    'Transfer-Encoding: \x85chunked',
    'Transfer-Encoding: \xa0chunked',
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding: x chunked',
    'Transfer-Encoding: chunked, identity',
    'Transfer-Encoding: identity, chunked',
    'Transfer-Encoding: gzip, chunked',
    'Transfer-Encoding: identity',
    'Transfer-Encoding: "chunked"',
    "Transfer-Encoding: 'chunked'",
    'Transfer-Encoding: chunked;q=1',
    'Transfer-Encoding: ,chunked',
    'Transfer-Encoding:',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity',
    'Transfer-Encoding: identity\r\nTransfer-Encoding: chunked',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked',
    ' Transfer-Encoding: chunked',
    '\tTransfer-Encoding: chunked',
    'Accept: a\nTransfer-Encoding: chunked',
    'Accept: a\rTransfer-Encoding: chunked',
    'Accept: a\r\n Transfer-Encoding: chunked',
    'Accept: a\0\r\nTransfer-Encoding: chunked',
    'Transfer-Encoding:\r\n chunked',
    'Transfer-Encoding: x\r\n chunked',
    'Transfer-Encoding\r\n: chunked',
    'Transfer_Encoding: chunked',
    'TransferEncoding: chunked',
    '\0Transfer-Encoding: chunked',
    '"Transfer-Encoding: chunked"',
    'TE: chunked',
    'Content-Encoding: chunked',
    'Connection: Transfer-Encoding',
    'Connection: Content-Length',
  ].flatMap((line) => [line, `${line}\r\nContent-Length: LENGTH`, `Content-Length: LENGTH\r\n${line}`]),
];

describe.concurrent('no request is read out of another', () => {
  it.each(FRAMINGS.map((framing) => [framing]))('with %j', async (framing) => {
    const conversation: Conversation = (mark) => {
      const body = `0\r\n\r\n${talks.request(`${mark}-inner`)}`;
      return talks.request(`${mark}-outer`) + talks.framed(framing.replaceAll('LENGTH', String(body.length)), body);
    };
    const oracle = await talks.elsewhere(conversation);
    const isRead = oracle.carriedOut.includes("select 'MARK-inner' as a");
    const outcomes = Object.values(CUTS).map((cut) => talks.onFastPath(conversation, cut));
    for (const { carriedOut, whole } of await Promise.all(outcomes)) {
      expect(carriedOut.includes("select 'MARK-inner' as a")).toBe(isRead);
      expect(whole).toBe(true);
    }
    // Pieces may be answered before what is wrong with the next has come.
    expect((await outcomes[0])?.replies).toEqual(oracle.replies);
  });
});
