// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/nvtopo/nvtopo/pkg/deviceplugin"
)

// socketPath is where the resource is served to kubelet. Names that make the
// path too long for a socket are replaced by their hash.
func socketPath(dir, resource string) string {
	path := filepath.Join(dir, socketPrefix+deviceplugin.SocketName(resource)+".sock")
	if len(path) <= deviceplugin.MaxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(resource))
	return filepath.Join(dir, socketPrefix+hex.EncodeToString(sum[:8])+".sock")
}
