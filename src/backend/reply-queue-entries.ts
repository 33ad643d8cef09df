/** Requests that a backend replies to, by frontend message. */
export const Request = { parse: 0, bind: 1, describe: 2, execute: 3, close: 4, sync: 5, query: 6, call: 7, copyEnd: 8 } as const;
export type RequestKind = (typeof Request)[keyof typeof Request];

/**
 * What becomes of a request's reply: the client gets it (`forward`); it is dropped, because the request was Postern's own (`skip`);
 * or the request is not sent, and Postern makes the reply (`simulate`).
 */
export const Disposition = { forward: 0, skip: 1, simulate: 2 } as const;
export type ReplyDisposition = (typeof Disposition)[keyof typeof Disposition];
