// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// sends counts how often a write went to the API server. client-go repeats a request by itself after a
// 429 or a 5xx with Retry-After, and net/http after a closed connection. The caller gets only the last
// answer, which proves nothing about the earlier requests.
type sends struct{ n atomic.Int32 }

// count returns a context for the write.
func (s *sends) count(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { s.n.Add(1) }})
}

// once reports whether the write was sent no more than once.
func (s *sends) once() bool { return s.n.Load() <= 1 }
