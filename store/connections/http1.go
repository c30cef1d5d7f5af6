package connections

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// The frames of HTTP/2 that RequireHTTP1 knows, RFC 9113.
const (
	preface         = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // section 3.4
	frameHeaders    = 0x1
	frameReset      = 0x3
	frameSettings   = 0x4
	frameGoAway     = 0x7
	frameBytesMax   = 16384 // section 4.2, since nothing larger is allowed here
	requiresHTTP1   = 0xd   // section 7, HTTP_1_1_REQUIRED
	refusalTime     = 3 * time.Second
	refusalFrameMax = 64
)

// RequireHTTP1 tells a client that has chosen HTTP/2 that HTTP/1.1 is required, in answer to its first request. Clients that can then ask
// again by that version, as the SDK for Rust does; it does not when no connection is made. RequireHTTP1 returns when the client has
// closed the connection, for which it has three seconds. The caller closes it.
func RequireHTTP1(conn net.Conn) {
	if conn.SetDeadline(time.Now().Add(refusalTime)) != nil || writeFrame(conn, frameSettings, 0, nil) != nil {
		return
	}
	begin := make([]byte, len(preface))
	if _, err := io.ReadFull(conn, begin); err != nil || string(begin) != preface {
		return
	}
	for range refusalFrameMax {
		// Three bytes of length, the type, flags, and the stream.
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if size > frameBytesMax {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, size); err != nil {
			return
		}
		if head[3] != frameHeaders {
			continue
		}
		stream := binary.BigEndian.Uint32(head[5:])
		why := binary.BigEndian.AppendUint32(nil, requiresHTTP1)
		if writeFrame(conn, frameReset, stream, why) != nil ||
			writeFrame(conn, frameGoAway, 0, append(binary.BigEndian.AppendUint32(nil, stream), why...)) != nil {
			return
		}
	}
}

// writeFrame writes a frame without flags.
func writeFrame(w io.Writer, kind byte, stream uint32, payload []byte) error {
	frame := append([]byte{0, 0, byte(len(payload)), kind, 0}, binary.BigEndian.AppendUint32(nil, stream)...)
	_, err := w.Write(append(frame, payload...))
	return err
}
