package natsd

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server"
)

// client is one that connects.
type client struct {
	server.ClientAuthentication
	sent server.ClientOpts
}

func (c *client) GetOpts() *server.ClientOpts { return &c.sent }

func (c *client) RegisterUser(*server.User) {}

// Whoever may delete or make streams waits until they are restored.
func TestCheck_AnAdminWaitsForTheServer(t *testing.T) {
	n, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		end  func(a *access) error // of the start
		want bool
	}{
		{"that admits", func(a *access) error { return a.admit(n) }, true},
		{"that does not start", func(a *access) error { a.close(); return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := openAccess(&Config{User: "u", Password: "p", DontListen: true, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				checked := make(chan bool, 1)
				go func() { checked <- a.Check(&client{sent: server.ClientOpts{Username: "u", Password: "p"}}) }()
				synctest.Wait()
				select {
				case ok := <-checked:
					t.Fatalf("admitted before the server is there: %v", ok)
				default:
				}
				if a.Check(&client{sent: server.ClientOpts{Username: "u", Password: "guess"}}) {
					t.Error("a wrong password is admitted")
				}
				if err := c.end(a); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				select {
				case ok := <-checked:
					if ok != c.want {
						t.Errorf("admitted: %v, want %v", ok, c.want)
					}
				default:
					t.Error("who waited was not woken")
				}
			})
		})
	}
}
