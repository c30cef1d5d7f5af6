package secrets_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/secrets"
	"github.com/millrace/millrace/feed/natsd"
)

// made is a directory of secrets, from which files were taken since.
func made(t *testing.T, taken ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if _, err := secrets.Make(dir, []string{"nats-1"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range taken {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns a file of secrets.
func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMake_KeepsTheAuthorityWithoutItsKey holds that an operator may keep the CA's key elsewhere: new
// credentials for a user leave the CA, and the certificate that it signed.
func TestMake_KeepsTheAuthorityWithoutItsKey(t *testing.T) {
	dir := made(t, secrets.FileCAKey, natsd.FileAdmin)
	ca := read(t, dir, secrets.FileCA)
	if _, err := secrets.Make(dir, []string{"nats-1"}); err != nil {
		t.Fatal(err)
	}
	read(t, dir, natsd.FileAdmin) // is there again
	if now := read(t, dir, secrets.FileCA); string(now) != string(ca) {
		t.Error("the CA is another one: those who trust the former one do not trust the servers that follow")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, secrets.FileServer), filepath.Join(dir, secrets.FileServerKey))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, dir, secrets.FileCA))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "nats-1"}); err != nil {
		t.Errorf("clients that trust the CA do not trust the servers: %v", err)
	}
}

// TestMake_AsksForTheKeyOfTheAuthority holds that nothing is signed by another CA than the one that
// clients trust already.
func TestMake_AsksForTheKeyOfTheAuthority(t *testing.T) {
	dir := made(t, secrets.FileCAKey, secrets.FileServer)
	ca := read(t, dir, secrets.FileCA)
	_, err := secrets.Make(dir, []string{"nats-1"})
	if err == nil || !strings.Contains(err.Error(), secrets.FileCAKey) {
		t.Errorf("got %v, want an error that names %s", err, secrets.FileCAKey)
	}
	if now := read(t, dir, secrets.FileCA); string(now) != string(ca) {
		t.Error("the CA was replaced")
	}
}
