// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestWebViewAddress: the web view listens on this machine only. An address that others can reach needs
// tokens, and has a certificate.
func TestWebViewAddress(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string // in the error; empty if there is none
	}{
		"by default":                      {nil, ""},
		"another port":                    {[]string{"--address", "127.0.0.1:0"}, ""},
		"localhost":                       {[]string{"--address", "localhost:9000"}, ""},
		"IPv6":                            {[]string{"--address", "[::1]:9000"}, ""},
		"all addresses":                   {[]string{"--address", ":8443"}, "--require-token"},
		"all addresses, said so":          {[]string{"--address", "0.0.0.0:8443"}, "--require-token"},
		"another address":                 {[]string{"--address", "10.0.0.1:8443"}, "--require-token"},
		"a name that could be anybody's":  {[]string{"--address", "example.com:8443"}, "--require-token"},
		"all addresses, with tokens":      {[]string{"--address", ":8443", "--require-token"}, ""},
		"no port":                         {[]string{"--address", "127.0.0.1"}, "--address"},
		"a certificate without tokens":    {[]string{"--tls-cert-file", "a", "--tls-private-key-file", "b"}, "--require-token only"},
		"a certificate without a key":     {[]string{"--require-token", "--tls-cert-file", "a"}, "go together"},
		"proxies without tokens":          {[]string{"--trusted-proxies", "10.0.0.7"}, "--require-token only"},
		"proxies with tokens":             {[]string{"--require-token", "--trusted-proxies", "10.0.0.7,10.1.0.0/16,fd00::/8"}, ""},
		"a proxy by its name":             {[]string{"--require-token", "--trusted-proxies", "ingress"}, "--trusted-proxies"},
		"a certificate, a key and tokens": {[]string{"--require-token", "--tls-cert-file", "a", "--tls-private-key-file", "b"}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd, v := newUIWith()
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			err := v.check()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || ExitCode(err) != ExitUsage) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
