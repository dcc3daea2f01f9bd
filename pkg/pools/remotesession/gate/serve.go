// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	// headerTimeout and maxHeader bound the resources that a client without a token can hold.
	headerTimeout = 10 * time.Second
	maxHeader     = 16 << 10
	// bodyTimeout bounds a client that sends its tensors slowly, and idleTimeout one that sends nothing
	// more.
	bodyTimeout = 5 * time.Minute
	idleTimeout = 2 * time.Minute
	// endTimeout is how long requests may go on once the session ends; a pod has 30 s.
	endTimeout = 20 * time.Second
	// maxToken is more bytes than any token of a session has.
	maxToken = 4096
)

// TokenFile returns a function that reads the token from a file, which kubelet keeps up to date.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		if len(data) > maxToken {
			return "", fmt.Errorf("read the token: more than %d bytes", maxToken)
		}
		return string(bytes.TrimSpace(data)), nil
	}
}

// Serve serves a handler until the context ends, and then lets running requests finish.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	<-ended
	if err != nil {
		return fmt.Errorf("stop serving: %w", err)
	}
	return nil
}
