package sdk_test

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Both SDKs go on while the node's certificate is renewed, twice: they trust the
// authority, which stays.
func TestSDKs_RunOverARenewal(t *testing.T) {
	s := start(t, true, "MILLRACE_GATEWAY_CERTIFICATE_LIFE=15s")
	options := trusting(t, s.certificate())
	transport := options.Transport.(*http.Client).Transport.(*http.Transport)
	transport.DisableKeepAlives = true // each request shakes hands anew
	var mu sync.Mutex
	shown := map[string]bool{}
	transport.TLSClientConfig.VerifyConnection = func(c tls.ConnectionState) error {
		mu.Lock()
		defer mu.Unlock()
		shown[c.PeerCertificates[0].SerialNumber.String()] = true
		return nil
	}
	renewals := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(shown) - 1
	}
	c := container(t, newDatabase(t, s.client(t, masterKey, options)), azcosmos.ContainerProperties{}, "/pk")
	var wg sync.WaitGroup
	defer wg.Wait()
	if err := packages(); err != nil {
		t.Logf("@azure/cosmos cannot be had, the Go SDK runs alone: %v", err)
	} else {
		wg.Go(func() {
			for renewals() < 2 && !t.Failed() {
				out := node(t, s, []string{"NODE_EXTRA_CA_CERTS=" + s.certificate()}, "run.js", "^(account|conditions of etags)$")
				if n := bytes.Count(out, []byte(`"error":""`)); n != 2 {
					t.Errorf("%d cases of 2 pass: %s", n, out)
				}
			}
		})
	}
	for i := 0; renewals() < 2 && !t.Failed(); i++ {
		_, err := c.CreateItem(t.Context(), pk("a"), object{"id": strconv.Itoa(i), "pk": "a"}.json(), nil)
		must(t, err)
	}
}
