import { constants, createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext, type SecureContext } from 'node:tls';
import { tlsServerEndPoint } from '../../src/auth/channel-binding.ts';
import { type Config, ConfigError } from '../../src/config.ts';
import type { Observe } from '../../src/observation.ts';
import { reasonOf } from '../../src/system-errors.ts';

/** The service's certificate and key for TLS handshakes. */
export interface TlsIdentity {
  /** PEM: the certificate, followed by intermediate certificates. */
  readonly cert: Buffer;
  /** PEM. */
  readonly key: Buffer;
  readonly context: SecureContext;
  /** tls-server-end-point data, to which logins are bound; undefined if the certificate has none. */
  readonly channelBinding: Buffer | undefined;
}

type TlsConfig = Pick<Config, 'POSTERN_TLS_CERT' | 'POSTERN_TLS_KEY'>;

/** The certificate and key in the files of POSTERN_TLS_CERT and POSTERN_TLS_KEY, as last read successfully. */
export class TlsFiles {
  readonly #certPath: string;
  readonly #keyPath: string;
  #identity: TlsIdentity;

  private constructor(certPath: string, keyPath: string) {
    this.#certPath = certPath;
    this.#keyPath = keyPath;
    this.#identity = readIdentity(certPath, keyPath);
  }

  /**
   * @returns undefined if none are configured
   * @throws ConfigError naming the variable whose file cannot be used
   */
  static open({ POSTERN_TLS_CERT: certPath, POSTERN_TLS_KEY: keyPath }: TlsConfig): TlsFiles | undefined {
    return certPath === undefined || keyPath === undefined ? undefined : new TlsFiles(certPath, keyPath);
  }

  /** The identity for new handshakes. */
  get identity(): TlsIdentity {
    return this.#identity;
  }

  /** Reads the files again. Open connections keep the old identity. If the files are invalid, new connections use it too. */
  reload(observe: Observe): void {
    try {
      this.#identity = readIdentity(this.#certPath, this.#keyPath);
    } catch (cause) {
      observe({ name: 'service.warning', message: 'the TLS certificate could not be reloaded, the old one stays in use', cause });
    }
  }
}

/** Checks certificate, key and their match one by one, so that the error can name the wrong file. */
function readIdentity(certPath: string, keyPath: string): TlsIdentity {
  const cert = blame(`POSTERN_TLS_CERT: ${certPath} cannot be read`, () => readFileSync(certPath));
  const key = blame(`POSTERN_TLS_KEY: ${keyPath} cannot be read`, () => readFileSync(keyPath));
  const certificate = blame(`POSTERN_TLS_CERT: ${certPath} is no PEM certificate`, () => new X509Certificate(cert));
  const privateKey = blame(`POSTERN_TLS_KEY: ${keyPath} is no unencrypted PEM private key`, () => createPrivateKey(key));
  // OpenSSL itself reports a mismatch only if the key has the same type as the certificate's.
  if (!certificate.checkPrivateKey(privateKey))
    throw new ConfigError('POSTERN_TLS_KEY: is not the key of the certificate in POSTERN_TLS_CERT');
  const context = blame(`POSTERN_TLS_CERT: ${certPath} cannot be used`, () => createSecureContext({ cert, key, ...AS_POSTGRES }));
  return { cert, key, context, channelBinding: tlsServerEndPoint(certificate.raw) };
}

/** The server chooses the cipher, and renegotiation is disabled. */
const AS_POSTGRES = { honorCipherOrder: true, secureOptions: constants.SSL_OP_NO_RENEGOTIATION };

function blame<T>(what: string, attempt: () => T): T {
  try {
    return attempt();
  } catch (error) {
    throw new ConfigError(`${what}: ${reasonOf(error)}`, { cause: error });
  }
}
