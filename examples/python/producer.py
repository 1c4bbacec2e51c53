#!/usr/bin/env python3
"""Sends one command for each subject:  producer.py cleanup.request file-1 file-2   producer.py settlement.start run-1 --data '{"holder": "me"}'"""
import argparse
import json

import leasehold


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("type", help="<kind>.<command>")
    parser.add_argument("subject", nargs="+")
    parser.add_argument("--data", type=json.loads, default={}, help="the command's members, a JSON object")
    options = parser.parse_args()
    kind, command = options.type.split(".")
    to = leasehold.producer()
    for subject in options.subject:
        print(subject, leasehold.send(to, kind, command, subject, options.data))
    if to.flush(30) > 0:
        raise SystemExit("not everything was delivered; sending it again under the same ids is safe")


if __name__ == "__main__":
    main()
