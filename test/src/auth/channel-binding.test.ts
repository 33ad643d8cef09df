import { describe, expect, it } from 'vitest';
import { tlsServerEndPoint } from '../../../src/auth/channel-binding.ts';
import { SeededRandom } from '../../support/random.ts';

/** Certificates made by OpenSSL, in DER, and what `openssl dgst` says of them. */
const CERTIFICATES: readonly { readonly signature: string; readonly der: string; readonly binding: string | undefined }[] = [
  {
    signature: 'MD5 with RSA',
    der:
      'MIIBQzCBzgIBATANBgkqhkiG9w0BAQQFADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhAOD5ql6zp86A1CAf7l7Gbxc+eDCSUUHKUI84Y1aJZhiR+ATMBIRARKtFUnAta7K90+x3jKEMJBLEYn4tYH5RSOsdYFU/' +
      'tzmzwCCv5dxf7TytaezsHJP+MVjprE+vL53GZwIDAQABMA0GCSqGSIb3DQEBBAUAA2EAGsPhcFB5ykG5MxsnISGCKxLsDSxIqcLE7F4Fe76eh94HHC1hU6F9' +
      'wtn9sqDWBGdT/SZFJE7V8WYDA0GYGkot6jLXDnHVB0D/F4aTdWVjzC7BxOGdr7JWLH3li55dTKGX',
    binding: '1848e0e3d85af58baef712c30bf9816ab94de7b5ae7516cf23f83c0c7fc295fd',
  },
  {
    signature: 'SHA-1 with RSA',
    der:
      'MIIBQzCBzgIBATANBgkqhkiG9w0BAQUFADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhAL4vYrl/mLVsxRJIt0skIJOADFfbijZ3xMcPrF5oDPg/MFUg95NJz/1vwpXq9OPhF7jP0vPQrccWE1BqD4xd9weQiWsG' +
      'Ljt0JCxZar27uffRJa10+6jYeDRN3mgeGPrQqQIDAQABMA0GCSqGSIb3DQEBBQUAA2EAm7q78LGmeCIg1Vba6qZlOoccMP0iTURaz6lyzb2JuW5XuCGXuzRH' +
      'PDOt+QLLstY3/a/rm0NvSCA0+Qu/DjoECmoJfJ7So5bxg06MCzJ1VQ6bo4MZD8+bBv6pI0vEtG+e',
    binding: '0668859180ece94d8b6ac70b690909dd324d2d1abe5398e36e152eb23c489ea6',
  },
  {
    signature: 'SHA-256 with RSA',
    der:
      'MIIBQzCBzgIBATANBgkqhkiG9w0BAQsFADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhAN0jrrsNC8YOG8S+a/LSRATNCSHKl9AJzzy6zN9NPpKVEyv59Wt0tBm+IqblDmSdSbkchSwbFEkPwfrV/aLx6rH01sN0' +
      'LPw9WK/b2aQmoMoXBE7a8TlmZdsY+I0ZUaupRQIDAQABMA0GCSqGSIb3DQEBCwUAA2EAcpHCj+/0hMqSfiPY6MR7V9P1fHGZ4tGv50oULBKL/kyxGNVUEb//' +
      'c/bNVDS7YP1B352VfbCwXQMORrXBMo6qKSdCo211uMl+5clLjLABJoweofJR5DuRxhPDsyKgzSV8',
    binding: '74e807071d25d233af4a1a780f224b94337700d120c64ee3b4a6233e9e3bc52d',
  },
  {
    signature: 'SHA-384 with RSA',
    der:
      'MIIBQzCBzgIBATANBgkqhkiG9w0BAQwFADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhALlbcYJqa6JrfV2r3Tjx4lwyd3EXOE7+ddEQ3+T7bIkx+B8fxAIN8i0VazPdx+9RtDXmi/eKChwwniNjDx+wEmsnsAKG' +
      'pAS2whEngEZ8fbmLDqjyuQ+G56XPamDmNOEXWwIDAQABMA0GCSqGSIb3DQEBDAUAA2EAfpzqpREQO9m7G9YsdO9ec/zCLtNOTQVes+YjErIK8fQfTTHimK0V' +
      'bimr6oukccpER1PigxKhvZaqc+nynkWqS13kWZBPkuraL2fJ4vivKqU8cS3xCjir8wFbfYwVUdqT',
    binding: 'a82aa231fda5d188300be005c90b4bf0b4142ea374717081476f7b350dad0309dc14956f8cd3e19ab0a58d10c20c7d4f',
  },
  {
    signature: 'SHA-512 with RSA',
    der:
      'MIIBQzCBzgIBATANBgkqhkiG9w0BAQ0FADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhAKQhPZWlg6U4yPb0uI2HDMzr7RBMc3yGtySBol/hTlcTxBqy5ULBThWpOOIndYnBNCCrjGCU5xLVnJTZVBfzgNiDera/' +
      'big1YtUIwXp8H+cQLlPLJe2quL1X3DjcyiSjRQIDAQABMA0GCSqGSIb3DQEBDQUAA2EAVAoZqUwKrW98bnoSULoMY0OyUQRtTzmedSboNtrWvtmxh+ykEWLk' +
      '1Ia7hhzy3Bp8EaGYwUFLZOGR+OKedNbHBmDL2GbmwB92w4TR5SVMgm8nlr/AT+2Nu+rqZov6Tr9K',
    binding:
      '5278706af020fd44cb4194a9562d25860ef62268d56587e4e2e924aa1e97d8f22e05f460f2ebd528e91f64f81ad630ed21a4ab3fc7b558f17433629987499fa5',
  },
  {
    signature: 'RSASSA-PSS with its defaults, which mean SHA-1',
    der:
      'MIIBiDCB8gIBATANBgkqhkiG9w0BAQowADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MIGf' +
      'MA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC+r8p5lt1fmiLNrmxtaPegqsa9wI6Up3UbXlsFWcgLmYrYG39F9ZYuzcUsghi0ORY5eMvFGK2XBsyY0haVU5g3' +
      'pV+sYy4MFiQzlQWCUrhDCOlEesGkaKsPO/0JGA8NYphhhnS60WjanMzSGhbhf4xNIeeK4mmo8m30QVBtpYRRHwIDAQABMA0GCSqGSIb3DQEBCjAAA4GBAFuw' +
      'zN+iwiZc3Ty5OfZ0//1wzb51kjN4FWC/CJs6CeHjqQ1iUhwScUij2BMRC8fSKPw41aV2wOsOG9IzW8v2yC9qG/ZW/HxzOM03bl8GnEenN8+sZ8OqkhUrNN9L' +
      'iRU48lwz120cazv/aspSen6BvOTJ4Sf2zrZofJxz1ICfQuMa',
    binding: '1fde29bc3485d03acf02ec01f37f5a78e589cbab7b9ed73774a3bc1fe671123e',
  },
  {
    signature: 'RSASSA-PSS with SHA-384',
    der:
      'MIIB8TCCASYCAQEwQQYJKoZIhvcNAQEKMDSgDzANBglghkgBZQMEAgIFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgIFAKIDAgEwMAwxCjAIBgNVBAMM' +
      'AXQwIBcNMjYxMTIxMDg0NTEyWhgPMjEyNjEwMjgwODQ1MTJaMAwxCjAIBgNVBAMMAXQwgZ8wDQYJKoZIhvcNAQEBBQADgY0AMIGJAoGBAKm7GNHM/EzMl0w0' +
      '73pbklvM6LsqQoh95tHG8+I7RJxVMrFJr4E5Z16bgD9K1khD9SP4ipzOmSMhdzemb9umc+wlZWpeMkLa3yg3gtjh8oUnuT8q/SVTEZlrlJcHaUmc9rINf/2k' +
      'SothlL8lRm2qxzS+kUxpzxrsFMz34o//7GwRAgMBAAEwQQYJKoZIhvcNAQEKMDSgDzANBglghkgBZQMEAgIFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQME' +
      'AgIFAKIDAgEwA4GBAEQPQ3d7PGMjpXHG1vAJ0VmRALpW6Qj/6879RioFIVzR/FMZIhLvazUH1MOMWXp7bQwbpe13FAwZ0NsRizhadEVTTj/0Iacp7dFTP9Lv' +
      'gxVo/5TCWqcQAQWvUxaAXExGUfkHsHp7xk+ChPeLG9PZprVdvIQOOmImR5t6mh2c96Ox',
    binding: '499f68cdf780ede693fcad9530d9d8dd5fe8b2fa097dd77aa7ace4f8fbddaa1f35b1abdddfef6a6b7e5c5a6bfc54cafe',
  },
  {
    signature: 'ECDSA with SHA-1',
    der:
      'MIIBADCBpwIBATAJBgcqhkjOPQQBMAwxCjAIBgNVBAMMAXQwIBcNMjYxMTIxMDg0NTEyWhgPMjEyNjEwMjgwODQ1MTJaMAwxCjAIBgNVBAMMAXQwWTATBgcq' +
      'hkjOPQIBBggqhkjOPQMBBwNCAAQHMj4Bdud1Fa36WC05XQZh5256XFWoLyRDP4IfgIauyo+fh9Au3gdvnmZUq2WFrubohvy5aUedkG8gU4iIKgarMAkGByqG' +
      'SM49BAEDSQAwRgIhAN6sF9XCvJn0mdauNXYjhLQbjlBU8ti1/pBASHNjVsTcAiEAyA7zepAF3dV+b8nzI1ay3+XXz8b8YLVn16B+sKrZ6Bc=',
    binding: '74e85af3922546686adc7191dc64a9d2b7cead461ef85398e63855581be4fb17',
  },
  {
    signature: 'ECDSA with SHA-224',
    der:
      'MIIBAjCBqAIBATAKBggqhkjOPQQDATAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MFkwEwYH' +
      'KoZIzj0CAQYIKoZIzj0DAQcDQgAED88xuP5GB5X9OtPDYqIViV/CSNP2G/dvw5bVreP3DCGb/BxjT2SX/dLH6itSwK0ewNqfU1cyQQroiI6toJuiQTAKBggq' +
      'hkjOPQQDAQNJADBGAiEAkYo+0EnZVLNdpmd4Br0pWhxVx4V0xII3GpnnZm/NC4sCIQDZOesl+xDm3Z3mxLRuyKDpxciI6m5AghQFx4dRB1uKGw==',
    binding: '0f031954277169e83234225eb0aed9b75410d30c00941dec9c8ddb29',
  },
  {
    signature: 'ECDSA with SHA-512',
    der:
      'MIIBATCBqAIBATAKBggqhkjOPQQDBDAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MFkwEwYH' +
      'KoZIzj0CAQYIKoZIzj0DAQcDQgAE5em67wOGxBffIU3DN+tKl1WGqE9tO7zKj+CzPJWiZcjosT3s8gv1mvMMnsiWZIkK7q6ZCyFeT2e0Fnn6oPwlzTAKBggq' +
      'hkjOPQQDBANIADBFAiAJul9rYgdism7y4UEPzRSwbznZMDczF+8HMEr+dq2yqwIhAO8X3C8y5aEJndz/DF5m30BPhQnrMwuMKAA+t8Mul1mO',
    binding:
      'bad84c18dd1b1d24f70f33403e606f9513c8cdf1f0abdd43c3509287e7343e36940eba57a55a6d5046bc0509c047792a2311698abfcb3ae4a48c64cfb78d445a',
  },
  {
    signature: 'Ed25519, which has no hash before signing',
    der:
      'MIHAMHQCAQEwBQYDK2VwMAwxCjAIBgNVBAMMAXQwIBcNMjYxMTIxMDg0NTEyWhgPMjEyNjEwMjgwODQ1MTJaMAwxCjAIBgNVBAMMAXQwKjAFBgMrZXADIQDF' +
      '2dceyPPMQyYwuhG13ozheUOlX9YaG+jjg47P7bNP2DAFBgMrZXADQQBE2CyasOrzqo30WJIFQXBkBAUVUknMWHUOV5blPR8lhuu9btnkdCeelF5DQ+C+5rsr' +
      'q/JszuxfHiNDks1PI1wF',
    binding: undefined,
  },
  {
    signature: 'Ed448',
    der:
      'MIIBDDCBjQIBATAFBgMrZXEwDDEKMAgGA1UEAwwBdDAgFw0yNjExMjEwODQ1MTJaGA8yMTI2MTAyODA4NDUxMlowDDEKMAgGA1UEAwwBdDBDMAUGAytlcQM6' +
      'AFHf26haqgM8fCjEIynwBj9UBWZFg7qaA+GMcdviorJbZW8UJMR95ZHs5xR2/SElCI6eo88J5e7bgDAFBgMrZXEDcwA2ieeG1IkaIKGO9MjI1jAtNUBSxX5v' +
      'LNJtkuoT/AFoiYD0bB+2mCAlhw+BFduWADs53B4Iyi/z5ID9MmGPrZ89s0DDKRsmtDHVhvmo7rePtB3ced2hJkeosAf9tHiKe6zkYcTq8mxUCHZM+RfL1f5+' +
      'GwA=',
    binding: undefined,
  },
  {
    signature: 'a hash that we do not know (SHA3-256)',
    der:
      'MIIBQzCBzgIBATANBglghkgBZQMEAw4FADAMMQowCAYDVQQDDAF0MCAXDTI2MTEyMTA4NDUxMloYDzIxMjYxMDI4MDg0NTEyWjAMMQowCAYDVQQDDAF0MHww' +
      'DQYJKoZIhvcNAQEBBQADawAwaAJhAKnoGfa4qY3QBX9mzu4HrU0N8qitQPG/cHTNw6FVYIw2NoW1DTxICPPn6o/2gQL1I0TaPUz4xRD+TRjHa/Lvg2cnxgqh' +
      'buunp6viqSYvq0uS7blJHQabkgJn2re4+OCRNwIDAQABMA0GCWCGSAFlAwQDDgUAA2EAocbYxWm+Vn1lht28exIk7idDbAornlMTSEW3ax07xjiKQHQX5SvX' +
      'FAc9+GuY4C4Hc8ZnjetK0Sjiaqk8xbs/ef+Zkb5bbBOzn0uEI/H9I/Li0F4O51m8fAvtRkDd4FSh',
    binding: undefined,
  },
];

describe('tls-server-end-point', () => {
  it.each(CERTIFICATES)('of a certificate signed by $signature', ({ der, binding }) => {
    expect(tlsServerEndPoint(Buffer.from(der, 'base64'))?.toString('hex')).toBe(binding);
  });

  it.each(CERTIFICATES)('of what is cut off before the signature algorithm ends is none ($signature)', ({ der }) => {
    const bytes = Buffer.from(der, 'base64');
    for (let length = 0; length < bytes.length; length++) expect(tlsServerEndPoint(bytes.subarray(0, length))).toBeUndefined();
  });

  it('of anything at all is found or not, without an error', () => {
    const random = new SeededRandom(5929);
    const bytes = Buffer.from(CERTIFICATES[6]?.der ?? '', 'base64');
    for (let run = 0; run < 10_000; run++) {
      const changed = Buffer.from(bytes);
      for (let i = 0; i < 4; i++) changed[random.below(changed.length)] = random.below(256);
      expect([undefined, 28, 32, 48, 64]).toContain(tlsServerEndPoint(changed)?.length);
    }
  });
});
