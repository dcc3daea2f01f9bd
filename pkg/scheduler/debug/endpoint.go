// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Endpoint returns the address of the process's endpoint, and its present certificate; nil while there is
// none.
func (s *Source) Endpoint() *diagnosis.Endpoint {
	if now := s.endpoint.Load(); now != nil {
		return (*now)()
	}
	return nil
}

// answersAt makes Endpoint return an address, and the certificate that config has at each call: the
// certificate's files may change.
func (s *Source) answersAt(address net.Addr, config *tls.Config) {
	now := func() *diagnosis.Endpoint {
		der, err := daemon.CertificateOf(config)
		if err != nil {
			return nil // clients are not answered either
		}
		sum := sha256.Sum256(der)
		return &diagnosis.Endpoint{Address: address.String(), CertificateSHA256: hex.EncodeToString(sum[:])}
	}
	s.endpoint.Store(&now)
}
