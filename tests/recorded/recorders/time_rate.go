// golang.org/x/time/rate: reads options and arrivals as JSON, and writes the answers as JSON (see subjects.py). A second of
// its clock is a millisecond, so that its floating-point numbers are exact.
package main

import (
	"encoding/json"
	"math"
	"os"
	"time"

	"golang.org/x/time/rate"
)

type question struct {
	Options struct {
		Limit, WindowMs, Burst, MaxDelayMs int
	}
	Arrivals [][]interface{}
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	options, limiters := asked.Options, map[string]*rate.Limiter{}
	answers := [][]interface{}{}
	first := asked.Arrivals[0][0].(float64)
	for _, arrival := range asked.Arrivals {
		since := time.Duration(arrival[0].(float64)-first) * time.Millisecond
		now, key, units := time.Unix(0, 0).Add(since), arrival[1].(string), int(arrival[2].(float64))
		if limiters[key] == nil {
			each := rate.Limit(float64(options.Limit) / float64(options.WindowMs))
			limiters[key] = rate.NewLimiter(each, options.Burst)
		}
		answers = append(answers, decide(limiters[key], now, units, options.MaxDelayMs))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}

func decide(limiter *rate.Limiter, now time.Time, units, maxDelay int) []interface{} {
	reserved := limiter.ReserveN(now, units)
	delay := reserved.DelayFrom(now)
	verdict := "admit"
	switch {
	case delay > time.Duration(maxDelay)*time.Second:
		reserved.CancelAt(now)
		verdict = "refuse"
	case delay > 0:
		verdict = "delay"
	}
	var left, wait interface{}
	if maxDelay == 0 {
		left = math.Floor(limiter.TokensAt(now))
	}
	if delay > 0 && (verdict == "delay" || maxDelay == 0) {
		wait = delay.Milliseconds()
	}
	return []interface{}{verdict, left, wait}
}
