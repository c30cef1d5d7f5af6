package sdk_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Clients write and read through the SDKs while a range is split and the process is killed and started again. What an SDK
// said was written must be there, whole batches or nothing, and each goes on by itself.
func TestSDKs_SplitAndKilledUnderLoad(t *testing.T) {
	rounds := 3
	if *long {
		rounds = 15
	}
	s := start(t, false)
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	w := newWriters(t, db, c, false)
	for i := range 8 {
		name := fmt.Sprint("go", i)
		w.inGo(name, c, name)
	}
	w.inNode("JavaScript", s, keysOf("js", 3)...)
	w.inPython("Python", s, "sync", keysOf("py", 3)...)
	w.inPython("asynchronous Python", s, "aio", keysOf("aio", 3)...)
	w.goOn()
	s.command(t, "split", db.ID()+"/items", "0")
	for range rounds {
		w.goOn()
		s.Kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
	}
	w.goOn()
	w.end()
}

// TLS with the certificate that the process made for itself, trusted by its file.
func TestGo_TLS(t *testing.T) {
	s := start(t, true)
	if !strings.HasPrefix(s.endpoint, "https://") {
		t.Fatal(s.endpoint)
	}
	client := s.client(t, masterKey, trusting(t, s.certificate()))
	c := container(t, newDatabase(t, client), azcosmos.ContainerProperties{}, "/pk")
	_, err := c.CreateItem(t.Context(), pk("a"), object{"id": "1", "pk": "a"}.json(), nil)
	must(t, err)
	if got := query(t, c, pk(), "SELECT * FROM c", 0); len(got) != 1 {
		t.Errorf("%d items over TLS", len(got))
	}
	// Plain HTTP gets no answer of the protocol, and a stranger's trust none at all.
	plain := &http.Client{Timeout: 10 * time.Second}
	if resp, err := plain.Get("http://" + strings.TrimPrefix(s.endpoint, "https://") + "/"); err == nil {
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Errorf("plain HTTP is answered with %d", resp.StatusCode)
		}
	}
	if resp, err := plain.Get(s.endpoint + "/"); err == nil {
		resp.Body.Close()
		t.Error("a client that does not trust the certificate is served")
	}
}

// certificate is the file of the authority that the process made.
func (s *server) certificate() string { return filepath.Join(s.dir, "gateway", "ca.pem") }

// trust is the environment in which programs in JavaScript, Python and Rust trust the authority.
func (s *server) trust() []string {
	if strings.HasPrefix(s.endpoint, "http://") {
		return nil
	}
	return []string{"NODE_EXTRA_CA_CERTS=" + s.certificate(), "REQUESTS_CA_BUNDLE=" + s.certificate(), "SSL_CERT_FILE=" + s.certificate()}
}
