// Package users keeps the users of databases, what each of them is permitted, and the tokens that
// carry a permission, as the Azure Cosmos DB protocol has them. It is no API: the gateway is made
// of it, and it changes without notice.
//
// # Model
//
//	User         of a database, by name; holds its permissions. One record, so that who deletes it deletes all
//	Permission   one resource, a container or an item of it, perhaps within one partition key; to read or for all
//	Token        names a permission by its serial and says until when; signed with a master key of the gateway
//
// The path of a token:
//
//	application ──key──▶ gateway: create or read the permission ──▶ token, signed with that key
//	its client  ─token─▶ gateway: signature ▶ expiry ▶ record of the user ▶ permission of that serial ▶ what it opens
//
// The record decides, and not the token, which holds no right of its own: what is not in the record any more, or has
// changed, opens nothing. A change of what a permission opens draws a new serial, so that the tokens of before do not
// get what it opens now.
//
// # What it holds against
//
//	forged     a signature over the whole token, HMAC-SHA256 under a key that is derived from the master key, compared
//	           in constant time, before anything that it says is looked at
//	altered    likewise
//	expired    the time is in what is signed
//	foreign    of another Millrace: another key; where two share their keys, the serial is random and in one record only
//	replayed   once revoked, or after the permission, its user, container or database was made anew under its name: the
//	           serial is not used again, and a permission names its container by resource id
//	confused   a token's signature is not that of a request, nor the other way round: the keys differ
//
// It does not hold against who reads a token on its way or where it lies: whoever has it may use it, as often as they
// like, until it expires or is revoked. Whoever has a master key that writes can sign any token, but only of permissions that are
// there. Whoever can write to NATS can write records, and so can give rights to a holder of a token; they have all rights
// anyway. Records hold no secret: to read them is not enough to make a token.
//
// # Where it is kept
//
// In the bucket millrace_users, made with the first user; FORMAT.md tells its records and the form of a token. It is not
// part of a backup: what is restored has other users, and each is to be made again. Where the bucket is lost all tokens
// are refused.
//
// All methods may be called concurrently, by several processes too.
package users
