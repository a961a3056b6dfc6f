package main

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	nfqueue "github.com/florianl/go-nfqueue/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

const (
	queueNumber = 100
	// A pod's status comes a second or two after its start; a client sends its first packet again after one.
	holdFor   = 5 * time.Second
	lookEvery = 50 * time.Millisecond
	// Packets to an address that nobody has are held as well: few of each sender, or one pod would fill the queue,
	// and no other pod of the node could begin a connection.
	heldOfSender, longestQueue = 32, 4096
)

type judge struct {
	engine *networkpolicy.PolicyEngine
	known  api.PodInfoProvider
	pods   netip.Prefix
	node   netip.Addr // the first address of its pods is the node's own
	held   held
}

// allows holds a packet until it is known whose its addresses are, and then asks the policies.
func (j *judge) allows(ctx context.Context, packet *network.Packet) bool {
	if !j.knowsBoth(packet) && !j.becomeKnown(ctx, packet) {
		return false
	}
	allowed, err := j.engine.EvaluatePacket(ctx, packet)
	return allowed && err == nil
}

func (j *judge) becomeKnown(ctx context.Context, packet *network.Packet) bool {
	sender := packet.SrcIP.String()
	if !j.held.begin(sender) {
		return false
	}
	defer j.held.end(sender)
	for deadline := time.Now().Add(holdFor); !j.knowsBoth(packet); {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(lookEvery)
	}
	return true
}

func (j *judge) knowsBoth(packet *network.Packet) bool {
	return j.knows(packet.DstIP) && j.knows(packet.SrcIP)
}

// held counts the packets that are held, by sender.
type held struct {
	sync.Mutex
	of map[string]int
}

func (h *held) begin(sender string) bool {
	h.Lock()
	defer h.Unlock()
	if h.of[sender] >= heldOfSender {
		return false
	}
	h.of[sender]++
	return true
}

func (h *held) end(sender string) {
	h.Lock()
	defer h.Unlock()
	if h.of[sender]--; h.of[sender] == 0 {
		delete(h.of, sender)
	}
}

// knows tells whether an address needs no pod, or has one that is known.
func (j *judge) knows(ip net.IP) bool {
	address, ok := netip.AddrFromSlice(ip.To4())
	if !ok || !j.pods.Contains(address) || address == j.node {
		return ok
	}
	_, found := j.known.GetPodInfoByIP(address.String())
	return found
}

// openQueue answers for each packet in a goroutine, since one may be held; without `allows` it only opens.
func openQueue(ctx context.Context, allows func(context.Context, *network.Packet) bool) error {
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      queueNumber,
		Flags:        nfqueue.NfQaCfgFlagGSO,
		MaxPacketLen: 128, // headers
		MaxQueueLen:  longestQueue,
		Copymode:     nfqueue.NfQnlCopyPacket,
		WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil || allows == nil {
		return err
	}
	answer := func(id uint32, payload []byte) {
		verdict := nfqueue.NfDrop
		packet, ok := parse(payload)
		if ok && allows(ctx, &packet) {
			verdict = nfqueue.NfAccept
		}
		if err := queue.SetVerdict(id, verdict); err != nil {
			klog.ErrorS(err, "verdict", "packet", id)
		}
	}
	received := func(packet nfqueue.Attribute) int {
		if packet.PacketID != nil && packet.Payload != nil {
			go answer(*packet.PacketID, append([]byte{}, *packet.Payload...))
		}
		return 0
	}
	return queue.RegisterWithErrorFunc(ctx, received, func(err error) int {
		klog.V(2).ErrorS(err, "queue")
		return 0
	})
}

// parse returns addresses and ports; of a protocol without ports, such as ICMP, the addresses.
func parse(payload []byte) (network.Packet, bool) {
	packet, err := network.ParsePacket(payload)
	if err == nil {
		return packet, true
	}
	if len(payload) < 20 || payload[0]>>4 != 4 {
		return packet, false
	}
	return network.Packet{
		Family: v1.IPv4Protocol, SrcIP: net.IP(payload[12:16]).To16(), DstIP: net.IP(payload[16:20]).To16(),
	}, true
}
