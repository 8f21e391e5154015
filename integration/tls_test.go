package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"thaw/broker/fleet"
)

// tlsCells connect, as a client that verifies, to a server in the same machine.
var tlsCells = map[string]string{
	"python": `
import socket, ssl, threading
def serve(l, c):
    s, _ = l.accept()
    with c.wrap_socket(s, server_side=True) as t:
        t.sendall(t.recv(100).upper())
here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
here.load_cert_chain('/workspace/tls.pem')
listener = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=serve, args=(listener, here)).start()
with socket.create_connection(listener.getsockname()) as s:
    with ssl.create_default_context(cafile='/workspace/tls.pem').wrap_socket(s, server_hostname='127.0.0.1') as t:
        t.sendall(b'hello')
        print(t.recv(100).decode(), t.version())
`,
	"node": `
await new Promise((resolve, reject) => {
  const tls = require('node:tls'), pem = require('node:fs').readFileSync('/workspace/tls.pem');
  const server = tls.createServer({ key: pem, cert: pem }, (c) => c.on('data', (b) => c.end(b.toString().toUpperCase())));
  server.listen(0, '127.0.0.1', () => {
    const c = tls.connect({ host: '127.0.0.1', port: server.address().port, ca: pem }, () => c.write('hello'));
    c.on('data', (b) => { console.log(b.toString(), c.getProtocol()); server.close(); resolve(); });
    c.on('error', reject);
  });
});
`,
}

// tlsIn has TLS clients and servers in both interpreters speak to each other. The
// certificate is younger than the snapshot and valid for minutes: the guest's clock
// must be right.
func tlsIn(t *testing.T, m *fleet.Machine, contexts map[string]uint64) {
	t.Helper()
	pemFile := certificate(t)
	if err := m.Agent().PutFile(t.Context(), "tls.pem", 0o644, int64(len(pemFile)), bytes.NewReader(pemFile)); err != nil {
		t.Fatal(err)
	}
	for runtime, source := range tlsCells {
		if got := strings.TrimSpace(string(cellIn(t, m, contexts[runtime], source))); got != "HELLO TLSv1.3" {
			t.Errorf("TLS in %s gives %q", runtime, got)
		}
	}
}

// certificate makes one for 127.0.0.1, signed by itself, with its key.
func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Second), NotAfter: now.Add(5 * time.Minute),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, block := range []*pem.Block{{Type: "PRIVATE KEY", Bytes: private}, {Type: "CERTIFICATE", Bytes: der}} {
		if err := pem.Encode(&b, block); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
