// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/pools/remotesession/gate"
)

// gateOptions holds the command line's values of a session's gate.
type gateOptions struct {
	listen, server, tokenFile string
	operations                []string
	maxBody                   int64
	maxRequests               int
}

// newRemoteGate returns the command that runs in the container in front of a session's server. It is part
// of this program so that a session needs no other nvtopo image.
func newRemoteGate() *cobra.Command {
	o := &gateOptions{}
	cmd := &cobra.Command{
		Use:   "remote-gate",
		Short: "Let the calls of a RemoteGPUSession through to its inference server",
		Long: `remote-gate is the container in front of the inference server of a RemoteGPUSession.
It asks each client for the session's token, lets the calls of the Open Inference
Protocol through that the session allows, and refuses all else with a reason.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", ":9000", "address to serve HTTP at")
	f.StringVar(&o.server, "server", "http://127.0.0.1:8080", "URL of the inference server")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the token that clients must bear")
	f.StringSliceVar(&o.operations, "operations", []string{"MODEL_FORWARD"}, "operations that clients may ask for")
	f.Int64Var(&o.maxBody, "max-body", gate.DefaultMaxBody, "bytes that a request may have")
	f.IntVar(&o.maxRequests, "max-requests", gate.DefaultMaxRequests, "requests that the server has at a time")
	return cmd
}

func (o *gateOptions) run(ctx context.Context) error {
	server, err := url.Parse(o.server)
	if err != nil || server.Scheme != "http" || server.Host == "" {
		return fmt.Errorf("--server: %q is no URL of HTTP", o.server)
	}
	g, err := gate.New(gate.Options{
		Server: server, Token: gate.TokenFile(o.tokenFile), Operations: o.operations, MaxBody: o.maxBody, MaxRequests: o.maxRequests,
	})
	if err != nil {
		return fmt.Errorf("make the gate: %w", err)
	}
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return gate.Serve(ctx, ln, g)
}
