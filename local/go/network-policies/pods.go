package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// leases tells whose the addresses of this node's pods are, by the results that the CNI library keeps:
// written before a pod has a process, removed after its last one has ended.
type leases struct {
	folder string
	pods   netip.Prefix
}

type result struct {
	Arguments [][2]string `json:"cniArgs"`
	Result    struct {
		Addresses []struct {
			Address string `json:"address"`
		} `json:"ips"`
	} `json:"result"`
}

// LookupPod returns namespace/name of the pod that has this address.
func (l leases) LookupPod(ip string) (string, bool) {
	address, err := netip.ParseAddr(ip)
	if err != nil || !l.pods.Contains(address) {
		return "", false
	}
	files, _ := filepath.Glob(filepath.Join(l.folder, "*-eth0"))
	for _, file := range files {
		var found result
		content, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(content, &found) != nil || !found.has(ip) {
			continue
		}
		arguments := map[string]string{}
		for _, pair := range found.Arguments {
			arguments[pair[0]] = pair[1]
		}
		return arguments["K8S_POD_NAMESPACE"] + "/" + arguments["K8S_POD_NAME"], true
	}
	return "", false
}

func (r result) has(ip string) bool {
	for _, each := range r.Result.Addresses {
		if strings.HasPrefix(each.Address, ip+"/") {
			return true
		}
	}
	return false
}

// reported tells whose the addresses of other nodes' pods are, as the API server has them.
type reported struct{ pods cache.Indexer }

const byAddress = "address"

func newReported(informer cache.SharedIndexInformer) (reported, error) {
	err := informer.AddIndexers(cache.Indexers{byAddress: func(object any) ([]string, error) {
		pod, ok := object.(*v1.Pod)
		if !ok || pod.Spec.HostNetwork || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			return nil, nil // what has ended keeps its address in the API, and another pod may have it
		}
		var addresses []string
		for _, each := range pod.Status.PodIPs {
			addresses = append(addresses, each.IP)
		}
		return addresses, nil
	}})
	return reported{informer.GetIndexer()}, err
}

// LookupPod returns namespace/name of the pod that has this address.
func (r reported) LookupPod(ip string) (string, bool) {
	found, err := r.pods.ByIndex(byAddress, ip)
	if err != nil || len(found) != 1 { // of two, one is not what it was: nobody's
		return "", false
	}
	key, err := cache.MetaNamespaceKeyFunc(found[0])
	return key, err == nil
}
