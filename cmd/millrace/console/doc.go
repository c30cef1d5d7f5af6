// Package console is what an operator looks at in a browser: where every pipeline stands, what is
// stuck and why, the containers with their items, and SQL.
//
// # The path of a look
//
// One loop, sampler.run, reads where the pipelines stand for all who look: every sampleBusy while
// somebody does, every sampleIdle while nobody does, for the plots of the last hour. Owners and
// streams are asked beside it (lookout), and dead letters are read when somebody asks, once for all
// who do (letterBoard): who is silent, or goes away, holds up nobody else.
//
// A page is rendered on the server, from the newest sample and from what it asks for itself: records,
// items, rows. It is whole without JavaScript. The rows of a query are also a file of any size, which
// is sent while it is made (Console.download).
//
// The one script of the console listens to /events, and when a sample comes it fetches the same
// page again and puts the parts marked data-live in the place of the old ones. What stands on a
// page therefore stands in one template. The overview, a pipeline and a container answer o=json
// with what the commands print under -o json.
//
// # What takes long
//
// A plan, an apply, a verification, a repair, or a retry or drop of many dead letters is a work: Run does it, so it goes on when the browser
// that began it looks elsewhere, and ends with Run. At most workMax are under way, each for
// workTimeout at most, and the outcomes of workKept are in memory. The work itself is that of the
// commands, called with their packages:
//
//	POST /plan ──▶ work ──▶ planned: texts, options, hash
//	                           │ the form has the work's ID and the hash, nothing else
//	POST /plan/apply ──────────┴──▶ Apply(texts, options, hash), which refuses if the plan of now
//	                                has another hash
//
// So what is applied is what was planned: the browser sends no declarations a second time, and what
// changed between is found by the registry.
//
// # Who may look
//
// A browser signs in with a master key of the gateway, or opens the address with a ticket that the
// command prints, which serves once. It gets a session: a random number in a cookie that scripts
// cannot read and that other sites' pages do not send. The session has the right of its key at
// each request: the session keeps the key and asks anew what it allows, so that replacing the key
// ends it. A link of another site therefore leads to the form to sign in, which says so and leads on:
// the cookie was not sent with it. Everything needs a session but the form to sign in and the files in static, which tell
// only how the console looks.
//
// Requests that change something are POST, are refused if another site's page sent them
// (http.CrossOriginProtection), and need the right to write. An act that cannot be undone has a second step:
// the answer to the first form asks whether the user is sure, and the second form does exactly
// what was shown there (confirmation). On a loopback listener the Host must
// be that of the loopback, so that a foreign name that resolves to 127.0.0.1 opens nothing.
// A page loads nothing from elsewhere and runs no script of its own text (Content-Security-Policy
// default-src 'self').
//
// It is no API: the command millrace is made of it, and it changes without notice.
package console
