// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// socketPath returns the path of the socket that serves the resource to kubelet. If the path would be too
// long for a socket, a hash replaces the name.
func socketPath(dir, resource string) string {
	path := filepath.Join(dir, socketPrefix+deviceplugin.SocketName(resource)+".sock")
	if len(path) <= deviceplugin.MaxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(resource))
	return filepath.Join(dir, socketPrefix+hex.EncodeToString(sum[:8])+".sock")
}
