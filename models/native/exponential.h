// e^-x for loops: products and sums alone, so that a loop over it becomes vector instructions.
//
// e^-x = (e^(-x / 128))^128: a Taylor series of a number near 0, squared seven times. The library's
// function would be a call for each number.
#ifndef LONGTAIL_EXPONENTIAL_H
#define LONGTAIL_EXPONENTIAL_H

// Of x where e^-x is not 0 in float64; below, 1 + e^-x is 1. For float32 it stays at e^-40.
#define LARGEST_EXPONENT 40.0

// Return e^-size for size >= 0 in float64, with a relative error of 1e-8.
static inline double exp_of_minus(double size) {
    const double x = (size < LARGEST_EXPONENT ? size : LARGEST_EXPONENT) * (-1.0 / 128);
    // 1 + x + x^2 / 2! + ... + x^8 / 8!, by Horner's rule
    const double series =
        1.0 / 24 + x * (1.0 / 120 + x * (1.0 / 720 + x * (1.0 / 5040 + x * (1.0 / 40320))));
    double power = 1.0 + x * (1.0 + x * (1.0 / 2 + x * (1.0 / 6 + x * series)));
    power *= power, power *= power, power *= power, power *= power;
    power *= power, power *= power, power *= power;
    return size < LARGEST_EXPONENT ? power : 0.0;
}

// Return e^-size for size >= 0 in float32, with a relative error of a few millionths.
static inline float exp_of_minus_float32(float size) {
    const float largest = (float)LARGEST_EXPONENT;
    const float x = (size < largest ? size : largest) * (-1.0f / 128);
    // 1 + x + x^2 / 2! + ... + x^5 / 5!
    const float series = 1.0f / 6 + x * (1.0f / 24 + x * (1.0f / 120));
    float power = 1.0f + x * (1.0f + x * (1.0f / 2 + x * series));
    power *= power, power *= power, power *= power, power *= power;
    power *= power, power *= power, power *= power;
    return power;
}

#endif
