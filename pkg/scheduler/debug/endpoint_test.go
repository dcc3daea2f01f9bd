// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/http"
	"testing"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

// TestEndpoint: the reported certificate is that of the TLS handshake.
func TestEndpoint(t *testing.T) {
	s := NewSource()
	if e := s.Endpoint(); e != nil {
		t.Errorf("before it answers: %+v", e)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config, err := daemon.TLSConfig(t.Context(), "", "", ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s.answersAt(ln.Addr(), config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Serve(ctx, daemon.NewServer(ctx, config, http.NotFoundHandler()), ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // to see what is shown
	conn, err := dialer.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	sum := sha256.Sum256(shown.Raw)
	e := s.Endpoint()
	if e == nil || e.Address != ln.Addr().String() || e.CertificateSHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("got %+v, want address %s and certificate %x", e, ln.Addr(), sum)
	}
}
