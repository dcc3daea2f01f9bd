// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"net"
	"testing"
	"time"
)

// TestConnectionLifetime: connections live until the server closes. An API server whose connections
// were cut before its hooks had run did not end, in one of twenty crashes.
func TestConnectionLifetime(t *testing.T) {
	t.Parallel()
	l, err := listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.cutWhenClosed()
	if err := client.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := served.Write([]byte("a")); err != nil {
		t.Errorf("before the server closes its listener: %v, want the connection to live", err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Errorf("reading what came before: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes after the server closed its listener, want the connection to be cut", n)
	}
}
