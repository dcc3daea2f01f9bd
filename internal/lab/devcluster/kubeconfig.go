// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes an administrator's kubeconfig, credentials included, to path.
func (c *Cluster) WriteKubeconfig(path string) error {
	return WriteKubeconfigOf(c.admin, path)
}

// WriteKubeconfigOf writes a kubeconfig with the server and the credentials of cfg to path.
func WriteKubeconfigOf(cfg *rest.Config, path string) error {
	const name = "nvtopo-devcluster"
	kc := clientcmdapi.NewConfig()
	kc.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kc.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cfg.CertData,
		ClientKeyData:         cfg.KeyData,
		Token:                 cfg.BearerToken,
	}
	kc.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kc.CurrentContext = name
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
